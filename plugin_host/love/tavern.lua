-- SPDX-License-Identifier: Apache-2.0
-- SPDX-FileCopyrightText: SuperSLM contributors

-- Three characters in one world. The world is read once and shared; each character's lines are read by another
-- thread; replies grow by a few layers per frame.

local superslm = require "superslm"

local WORLD = "You are in the Drowned Lantern, a tavern on the quay of Saltreach. Outside a storm pulls at the "
  .. "shutters, and the ferry will not sail tonight. The stove is hot, a lame gull named Commodore sleeps "
  .. "on the counter, and at dusk the bell of the lighthouse rang by itself. "
  .. "Nobody trusts the tax collector, who sits by the window with wet boots and a locked chest, "
  .. "and nobody knows why the harbour master has not been seen since noon. The soup is thin, the stories are long, and so is the night. "
  .. "Stay in your part and answer in one or two short sentences."
local CAST = {
  { name = "Marta", persona = " You are Marta, who keeps the tavern.", line = "What do you serve tonight?" },
  { name = "Oren", persona = " You are Oren, an old sailor.", line = "Have you ever seen a storm like this?" },
  { name = "Pip", persona = " You are Pip, a young thief.", line = "Who is the man by the window?" },
}
local WORLD_BUDGET, BUDGET, REPLY = 256, 512, 48

local Tavern = {}
Tavern.__index = Tavern

local function join(...)
  local ids = {}
  for _, list in ipairs { ... } do
    for _, id in ipairs(list) do ids[#ids + 1] = id end
  end
  return ids
end

function Tavern.open(path)
  local model = superslm.load(path)
  local self = setmetatable({ model = model, layers = math.ceil(model.layers / 6), characters = {} }, Tavern)
  self.workspace, self.reading = model:workspace(#CAST, 64), model:workspace(1, 64)
  self.pool = model:pool(model:pages(WORLD_BUDGET) + 2 * #CAST * model:pages(BUDGET))
  self.world_ids = join(model:chat("system", "prefix"), model:tokenize(WORLD))
  self.world = self.pool:prefix(self.world_ids, WORLD_BUDGET, self.workspace)
  for i, part in ipairs(CAST) do
    local sequence = self.pool:sequence(BUDGET)
    sequence:adopt(self.world)
    self.characters[i] = { name = part.name, persona = part.persona, greeting = part.line, sequence = sequence,
      mood = "silent", text = "", reply = {}, layer = 0, used = 0, fresh = true }
  end
  self.lines, self.read = love.thread.getChannel("lines"), love.thread.getChannel("read")
  self.reader = love.thread.newThread("reader.lua")
  self.reader:start()
  return self
end

-- A character whose memory is full starts again from the world.
function Tavern:forget(character)
  character.sequence:adopt(self.world)
  character.used, character.fresh = 0, true
end

-- Queues a line for a character that is silent. Returns the ids it will read.
function Tavern:say(who, line)
  local character, model = self.characters[who], self.model
  if character.mood ~= "silent" then return end
  if character.used > BUDGET - REPLY - 128 then self:forget(character) end
  local before
  if character.fresh then
    before = join(model:tokenize(character.persona), model:chat("system", "suffix"))
  else -- close the reply before; a stop token stands in the suffix already
    local pending = character.sequence.pending
    before = join(pending and not model.stop[pending] and { pending } or {}, model:chat("assistant", "suffix"))
  end
  local ids = join(before, model:chat("user", "prefix"), model:tokenize(line), model:chat("user", "suffix"),
    model:chat("assistant", "prefix"))
  character.fresh, character.line, character.prompt = false, line, ids
  character.used = character.used + #ids
  character.text, character.reply, character.stream = "", {}, model:detokenizer()
  character.mood = "reading"
  self.lines:push({ who = who, ids = ids, model = superslm.lend(model), workspace = superslm.lend(self.reading),
    sequence = superslm.lend(character.sequence) })
  return ids
end

-- One slice of a frame: those who stand at the same layer go together. Returns the ids that became known.
function Tavern:update()
  for _ = 1, self.read:getCount() do
    local done = self.read:pop()
    if done.why then error(done.why) end
    self.characters[done.who].mood = "speaking"
  end
  local layer, batch, sequences = 0, {}, {}
  for _, c in ipairs(self.characters) do
    if c.mood == "speaking" then layer = math.max(layer, c.layer) end
  end
  for _, c in ipairs(self.characters) do
    if c.mood == "speaking" and c.layer == layer then
      batch[#batch + 1], sequences[#sequences + 1] = c, c.sequence
    end
  end
  if #batch == 0 then return end
  local ids = self.model:decode(sequences, self.layers, self.workspace)
  for i, c in ipairs(batch) do self:hear(c, ids[i]) end
end

function Tavern:hear(character, id)
  character.layer = id and 0 or character.layer + self.layers
  if not id then return end
  character.used = character.used + 1
  if not self.model.stop[id] then
    character.reply[#character.reply + 1] = id
    character.text = character.text .. character.stream:push(id)
  end
  if self.model.stop[id] or #character.reply == REPLY then character.mood = "silent" end
end

function Tavern:quiet()
  for _, c in ipairs(self.characters) do
    if c.mood ~= "silent" then return false end
  end
  return true
end

function Tavern:change_budget(by)
  self.layers = math.max(1, math.min(self.model.layers, self.layers + by))
end

local SCENE = { "mood", "layer", "used", "fresh", "line" } -- what the scene knows beside the blob

-- A saved game, mid-token or not; nil while someone still listens.
function Tavern:save()
  local saved = {}
  for i, c in ipairs(self.characters) do
    if c.mood == "reading" then return nil end
    saved[i] = { blob = c.sequence:save(), pending = c.sequence.pending, reply = join(c.reply) }
    for _, field in ipairs(SCENE) do saved[i][field] = c[field] end
  end
  return saved
end

-- Goes on exactly where it was saved. False while someone still listens.
function Tavern:load(saved)
  for _, c in ipairs(self.characters) do
    if c.mood == "reading" then return false end
  end
  for i, c in ipairs(self.characters) do
    c.sequence:close()
    c.sequence = self.pool:restore(saved[i].blob, self.world, saved[i].pending)
    for _, field in ipairs(SCENE) do c[field] = saved[i][field] end
    c.reply, c.text, c.stream = join(saved[i].reply), "", self.model:detokenizer()
    for _, id in ipairs(c.reply) do c.text = c.text .. c.stream:push(id) end
  end
  return true
end

function Tavern:close()
  self.lines:push("quit")
  self.reader:wait()
  for _, c in ipairs(self.characters) do c.sequence:close() end
  self.world:close()
  self.pool:close()
  self.reading:close()
  self.workspace:close()
  self.model:close()
end

return Tavern
