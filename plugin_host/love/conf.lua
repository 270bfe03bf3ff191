-- SPDX-License-Identifier: Apache-2.0
-- SPDX-FileCopyrightText: SuperSLM contributors

function love.conf(t)
  t.identity = "superslm-tavern"
  t.version = "11.4"
  t.window.title = "The Drowned Lantern"
  t.window.width, t.window.height = 960, 600
  t.window.vsync = 1
  t.modules.physics, t.modules.joystick, t.modules.audio, t.modules.sound = false, false, false, false
  if os.getenv("TAVERN_HEADLESS") then -- a test without any display
    t.modules.window, t.modules.graphics, t.modules.mouse = false, false, false
  end
end
