-- SPDX-License-Identifier: Apache-2.0
-- SPDX-FileCopyrightText: SuperSLM contributors

-- How the tavern looks: three guests, bubbles that fill as tokens arrive, a graph of what the library took of
-- each frame.

local scene = {}
local g = love.graphics
local W, H, FLOOR, PANEL = 960, 600, 430, 470
local GRAPH = { x = 600, y = 492, w = 340, h = 84, ms = 16.7 }
local LOOKS = {
  { x = 170, coat = { .55, .23, .25 }, hair = { .30, .17, .10 } },
  { x = 480, coat = { .20, .32, .42 }, hair = { .78, .76, .72 } },
  { x = 790, coat = { .28, .38, .25 }, hair = { .12, .10, .10 } },
}

local tavern, fonts, chosen, typed, note, saved = nil, {}, 1, "", "", nil
local frames, rain, clock = {}, {}, 0

function scene.open(opened)
  tavern = opened
  fonts.small, fonts.text, fonts.name = g.newFont(12), g.newFont(15), g.newFont(17)
  for i = 1, 60 do rain[i] = { x = math.random(), y = math.random(), v = .8 + math.random() } end
  for i, c in ipairs(tavern.characters) do tavern:say(i, c.greeting) end
  love.keyboard.setKeyRepeat(true)
end

-- ---- Input ----

function scene.type(text)
  if tonumber(text) and typed == "" and tavern.characters[tonumber(text)] then
    chosen = tonumber(text)
  else
    typed = typed .. text
  end
end

function scene.click(x, y)
  for i, look in ipairs(LOOKS) do
    if math.abs(x - look.x) < 110 and y < PANEL then chosen = i end
  end
end

function scene.key(key)
  if key == "backspace" then
    local last = require("utf8").offset(typed, -1)
    if last then typed = typed:sub(1, last - 1) end
  elseif key == "return" and typed ~= "" then
    if tavern:say(chosen, typed) then typed = "" else note = "still speaking" end
  elseif key == "f5" then
    saved = tavern:save()
    note = saved and "saved" or "someone still listens, try again"
  elseif key == "f9" then
    note = saved and tavern:load(saved) and "restored" or "nothing restored"
  end
end

function scene.update(dt, ms)
  clock = clock + dt
  frames[#frames + 1] = ms
  if #frames > GRAPH.w / 2 then table.remove(frames, 1) end
  for _, drop in ipairs(rain) do drop.y = (drop.y + drop.v * dt * 2) % 1 end
  local shot = os.getenv("TAVERN_SCREENSHOT")
  if shot and scene.shows_speech() then
    g.captureScreenshot(function(image)
      local file = assert(io.open(shot, "wb"))
      file:write(image:encode("png"):getString())
      file:close()
      love.event.quit()
    end)
  end
end

-- Whether it is a good moment for a picture: all have spoken a while, someone still does.
function scene.shows_speech()
  local speaking = false
  for _, c in ipairs(tavern.characters) do
    if #c.reply < 18 then return false end
    speaking = speaking or c.mood == "speaking"
  end
  return speaking and #frames > 60
end

-- ---- The room ----

local function window(x, y, w, h)
  g.setColor(.08, .11, .16)
  g.rectangle("fill", x, y, w, h, 6)
  g.setColor(.45, .55, .68, .5)
  for _, drop in ipairs(rain) do
    local dx, dy = x + 4 + drop.x * (w - 12), y + 4 + drop.y * (h - 16)
    g.line(dx, dy, dx - 2, dy + 9)
  end
  g.setColor(.25, .16, .10)
  g.setLineWidth(6)
  g.rectangle("line", x, y, w, h, 6)
  g.setLineWidth(3)
  g.line(x + w / 2, y, x + w / 2, y + h)
  g.line(x, y + h / 2, x + w, y + h / 2)
  g.setLineWidth(1)
end

local function lantern(x, y)
  local flicker = 1 + .04 * math.sin(clock * 9 + x) + .03 * math.sin(clock * 23)
  for radius = 150, 20, -10 do
    g.setColor(1, .72, .32, .018 * flicker)
    g.circle("fill", x, y, radius * flicker)
  end
  g.setColor(.20, .14, .10)
  g.line(x, 0, x, y - 14)
  g.setColor(1, .82, .45)
  g.circle("fill", x, y, 9)
end

local function room()
  g.clear(.13, .09, .075)
  g.setColor(.17, .115, .09)
  for x = 0, W, 64 do g.rectangle("fill", x, 0, 61, FLOOR) end
  window(290, 110, 70, 110)
  window(600, 110, 70, 110)
  for _, x in ipairs { 165, 480, 795 } do lantern(x, 50) end
end

-- In front of the guests.
local function counter()
  g.setColor(.36, .22, .13)
  g.rectangle("fill", 0, FLOOR - 34, W, 20, 3)
  g.setColor(.27, .165, .10)
  g.rectangle("fill", 0, FLOOR - 14, W, 60)
end

local function person(i, character)
  local look = LOOKS[i]
  local sway = character.mood == "speaking" and math.sin(clock * 6 + i) * 2 or 0
  local x, y = look.x, FLOOR - 110 + sway
  g.setColor(look.coat)
  g.rectangle("fill", x - 46, y + 20, 92, 100, 26)
  g.setColor(.87, .69, .55)
  g.circle("fill", x, y, 28)
  g.setColor(look.hair)
  g.arc("fill", x, y - 4, 30, math.pi, 2 * math.pi)
  g.setColor(.15, .1, .1)
  g.circle("fill", x - 10, y + 2, 3)
  g.circle("fill", x + 10, y + 2, 3)
  local open = character.mood == "speaking" and 3 + 3 * math.abs(math.sin(clock * 11 + i)) or 1.5
  g.ellipse("fill", x, y + 14, 7, open)
end

local function mug(x)
  g.setColor(.70, .55, .30)
  g.rectangle("fill", x, FLOOR - 56, 20, 24, 3)
  g.setLineWidth(3)
  g.circle("line", x + 23, FLOOR - 44, 7)
  g.setLineWidth(1)
  g.setColor(.95, .92, .84)
  g.ellipse("fill", x + 10, FLOOR - 56, 11, 4)
end

local function name_tag(i, character)
  g.setFont(fonts.name)
  g.setColor(i == chosen and { 1, .82, .45 } or { .72, .62, .52 })
  g.printf(character.name, LOOKS[i].x - 100, FLOOR - 9, 200, "center")
end

local function bubble(i, character)
  local text = character.text
  if character.mood == "reading" then text = ("."):rep(1 + math.floor(clock * 3) % 3) end
  if text == "" then return end
  local x, width = LOOKS[i].x, 272
  local _, wrapped = fonts.text:getWrap(text, width - 28)
  local height = #wrapped * fonts.text:getHeight() + 22
  local left, top = math.max(8, math.min(W - width - 8, x - width / 2)), 278 - height
  g.setColor(.97, .94, .87)
  g.rectangle("fill", left, top, width, height, 12)
  g.polygon("fill", x - 12, top + height - 1, x + 10, top + height - 1, x - 2, top + height + 14)
  g.setFont(fonts.text)
  g.setColor(.15, .1, .08)
  g.printf(text, left + 14, top + 11, width - 28)
end

-- ---- The panel ----

local function graph()
  local x, y, w, h = GRAPH.x, GRAPH.y, GRAPH.w, GRAPH.h
  g.setColor(.07, .05, .045)
  g.rectangle("fill", x, y, w, h, 4)
  for k, ms in ipairs(frames) do
    local height = math.min(h, ms / GRAPH.ms * h)
    g.setColor(ms < 4 and { .45, .72, .45 } or ms < 10 and { .88, .70, .32 } or { .85, .36, .28 })
    g.rectangle("fill", x + (k - 1) * 2, y + h - height, 2, height)
  end
  g.setFont(fonts.small)
  g.setColor(.80, .72, .62)
  g.print(("library %.1f ms of 16.7    %d of %d layers per frame (wheel)"):format(
    frames[#frames] or 0, tavern.layers, tavern.model.layers), x, y - 17)
end

local function input()
  g.setColor(.07, .05, .045)
  g.rectangle("fill", 20, 492, 556, 40, 4)
  g.setFont(fonts.text)
  g.setColor(1, .82, .45)
  local caret = math.floor(clock * 2) % 2 == 0 and "|" or ""
  g.printf(("to %s: %s%s"):format(tavern.characters[chosen].name, typed, caret), 32, 503, 536)
  g.setFont(fonts.small)
  g.setColor(.62, .54, .46)
  g.print("1 2 3 or click: who   return: say   wheel: layers per frame   F5 save   F9 restore", 20, 544)
  g.print(("%s kernels, one thread, %d fps   %s"):format(tavern.model.tier, love.timer.getFPS(), note), 20, 562)
end

function scene.draw()
  room()
  for i, c in ipairs(tavern.characters) do person(i, c) end
  counter()
  for _, x in ipairs { 60, 250, 560, 690, 880 } do mug(x) end
  for i, c in ipairs(tavern.characters) do
    name_tag(i, c)
    bubble(i, c)
  end
  g.setColor(.16, .10, .075)
  g.rectangle("fill", 0, PANEL - 6, W, H - PANEL + 6)
  graph()
  input()
end

return scene
