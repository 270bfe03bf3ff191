-- SPDX-License-Identifier: Apache-2.0
-- SPDX-FileCopyrightText: SuperSLM contributors

-- The scene without a window: everyone is asked at once, the game is saved and restored in mid-sentence, and
-- what was read and said is printed as token ids, for a test to compare. It ends on a machine of any speed: who
-- reads and who speaks when is up to the threads, so the last one to read must do for the save.

local headless = {}
local tavern, frames, saved_at, worst = nil, 0, nil, 0

function headless.open(opened)
  tavern = opened
  for i, c in ipairs(tavern.characters) do tavern:say(i, c.greeting) end
end

local function report()
  local world = table.concat(tavern.world_ids, " ")
  for _, c in ipairs(tavern.characters) do
    print(("prompt %s %s"):format(world, table.concat(c.prompt, " ")))
    print(("reply %s"):format(table.concat(c.reply, " ")))
    print(("%s: %s"):format(c.name, c.text))
  end
  print(("frames %d, saved at frame %s, worst library time %.2f ms"):format(frames, saved_at, worst))
  local same, why = tavern.model:verify()
  print("self-check: " .. (same and "verified" or why))
end

-- Whether someone stands in mid-sentence, within a token.
local function in_mid_token()
  for _, c in ipairs(tavern.characters) do
    if c.mood == "speaking" and #c.reply > 4 and c.layer > 0 then return true end
  end
  return false
end

function headless.update(_, ms)
  frames, worst = frames + 1, math.max(worst, ms)
  if frames % 7 == 0 then tavern:change_budget(tavern.layers > 12 and -9 or 4) end -- never a whole token
  if not saved_at and in_mid_token() then
    local saved = tavern:save()
    if saved then
      for _ = 1, 5 do tavern:update() end -- played on, and taken back
      if tavern:load(saved) then saved_at = frames end
    end
  end
  if tavern:quiet() and saved_at then
    report()
    love.event.quit()
  end
end

function headless.draw() end
function headless.type() end
function headless.click() end
function headless.key() end

return headless
