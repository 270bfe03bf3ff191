# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
# The plugin as an object: open, say, then frame() once per frame.
extends Reference

var loaded = false
var _native = GDNative.new()

# Whether the library is there; nothing else may be called otherwise.
func load_library() -> bool:
	_native.library = load("res://superslm.gdnlib")
	loaded = _native.initialize()
	return loaded

func open(path: String, world: String, characters: int, budget_us: int) -> String:
	return _call("open", [path, world, characters, budget_us])

func say(who: int, persona: String, line: String) -> String:
	return _call("say", [who, persona, line])

func frame() -> String:
	return _call("frame", [])

func done() -> bool:
	return _call("done", []) == 1

func text(who: int) -> String:
	return _call("text", [who])

func save_and_restore() -> int:
	return _call("save_and_restore", [])

func transcript() -> String:
	return _call("transcript", [])

func close() -> void:
	_call("close", [])
	_native.terminate()

func _call(name: String, arguments: Array):
	return _native.call_native("standard_varcall", "superslm_" + name, arguments)
