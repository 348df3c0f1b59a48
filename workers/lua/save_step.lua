#!lua flags=allow-oom
-- Save a step of a lane's work, if the caller still holds the lane.
-- KEYS of the session   ARGV[1] lane, [2] token, [3] work id, [4] position (counted over the whole work), [5] step,
-- [6] the handle that a turn's step brought: "<name>\t<handle>\t<parent>", all JSON ("" without)
-- Returns {"held", number of steps, committed rounds included}; LOST too when the position would leave a gap. A handle
-- that is refused with its step is due for disposal by itself.
-- Sent twice, the second finds its step there.
local lane, token, id, position = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local head = load(HEAD)

local function refused()
  disown(head, id, ARGV[6])
  return LOST
end

if not holds(head, lane, token, id) then return refused() end
local work, prefix = current_work(head, lane)
local saved = number(work, prefix .. "step_base") + call("LLEN", STEPS[lane])
if position > saved then return refused() end
if position == saved then
  call("RPUSH", STEPS[lane], ARGV[5])
  set(work, prefix .. "progress", "1")
  if ARGV[6] ~= "" then set(work, "handles", get(work, "handles") .. ARGV[6] .. "\n") end
  save_work(head, work)
  renew(head, lane)
  save_head(head)
  saved = saved + 1
end
return {"held", saved}
