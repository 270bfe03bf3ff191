-- SPDX-License-Identifier: Apache-2.0
-- SPDX-FileCopyrightText: SuperSLM contributors

--   love plugin_host/love MODEL.sslm
--
-- 1, 2, 3 or a click choose who is spoken to; type and press return; the mouse wheel changes how many layers a
-- frame computes; F5 saves, F9 restores, in mid-sentence too.

local Tavern = require "tavern"

local tavern, scene
local headless = os.getenv("TAVERN_HEADLESS")

function love.load(arguments)
  local path = arguments[1] or os.getenv("SUPERSLM_MODEL")
  if not path then error("usage: love plugin_host/love MODEL.sslm") end
  tavern = Tavern.open(path)
  scene = headless and require("headless") or require("scene")
  scene.open(tavern)
end

function love.update(dt)
  local start = love.timer.getTime()
  tavern:update()
  scene.update(dt, 1000 * (love.timer.getTime() - start))
end

function love.draw() scene.draw() end
function love.wheelmoved(_, y) tavern:change_budget(y > 0 and 1 or -1) end
function love.textinput(text) scene.type(text) end
function love.mousepressed(x, y) scene.click(x, y) end

function love.keypressed(key)
  if key == "escape" then love.event.quit() end
  scene.key(key)
end

function love.quit() tavern:close() end
