# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
# Headless: godot3-server --path gdnative/project -s test.gd, with SUPERSLM_MODEL in the environment.
extends SceneTree

const WORLD = "You are in the Drowned Lantern, a tavern on the quay of Saltreach. Outside a storm pulls at the shutters, and the ferry will not sail tonight. The stove is hot, a lame gull named Commodore sleeps on the counter, and at dusk the bell of the lighthouse rang by itself. Nobody trusts the tax collector, who sits by the window with wet boots and a locked chest, and nobody knows why the harbour master has not been seen since noon. The soup is thin, the stories are long, and so is the night. Stay in your part and answer in one or two short sentences."
const CAST = [
	[" You are Marta, who keeps the tavern.", "What do you serve tonight?"],
	[" You are Oren, an old sailor.", "Have you ever seen a storm like this?"],
	[" You are Pip, a young thief.", "Who is the man by the window, größter Dieb?"],
]

var superslm = preload("res://superslm.gd").new()
var frames = 0
var saved = 0
var playing = false

func _init():
	if not superslm.load_library():
		printerr("the plugin cannot be loaded")
		quit(1)
		return
	var refused = superslm.open("res://project.godot", WORLD, 3, 2000)
	print("refused: ", refused)
	var why = superslm.open(OS.get_environment("SUPERSLM_MODEL"), WORLD, CAST.size(), 4000)
	for i in range(CAST.size()):
		if why == "":
			why = superslm.say(i, CAST[i][0], CAST[i][1])
	playing = why == ""
	if not playing:
		printerr(why)
		quit(1)

# Frames go on until the one in which quit() was called has ended.
func _iteration(_delta):
	if not playing:
		return
	frames += 1
	var why = superslm.frame()
	if why != "":
		printerr(why)
		quit(1)
	elif saved <= 0 and superslm.text(0).length() > 20:
		saved = superslm.save_and_restore()
	elif superslm.done():
		report()

func report():
	playing = false
	print(superslm.transcript())
	print("frames ", frames, ", saved and restored in mid-sentence: ", saved, " bytes")
	print("Marta: ", superslm.text(0))
	quit()

func _finalize():
	if superslm.loaded:
		superslm.close()
