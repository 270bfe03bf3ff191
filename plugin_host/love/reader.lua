-- SPDX-License-Identifier: Apache-2.0
-- SPDX-FileCopyrightText: SuperSLM contributors

-- Reads prompts outside the frame: a prompt token costs a whole pass over the weights. Runs as a love.thread
-- with a Lua state of its own, and takes handles from the game over a channel.

local lines, read = love.thread.getChannel("lines"), love.thread.getChannel("read")
local superslm = require "superslm"

while true do
  local line = lines:demand()
  if line == "quit" then return end
  local ok, why = pcall(superslm.prefill_lent, line.model, line.sequence, line.workspace, line.ids)
  read:push({ who = line.who, why = not ok and why or nil })
end
