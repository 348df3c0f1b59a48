#!lua flags=allow-oom
-- Try a lane's work again later, or end it as failed.
-- KEYS of the session   ARGV[1] lane, [2] token, [3] work id, [4] code, [5] reason, [6] retry seconds ("" ends it)
-- Returns {"held", next turn or "" (always for a job)}, or LOST: also when it is sent twice, for then the lane was
-- given back.
local lane, token, id, code, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local function try_again_later(head, work, prefix)
  local at = NOW + math.min(tonumber(ARGV[6]), LONGEST_RETRY_SECONDS)
  set(work, prefix .. "not_before", at)
  set(work, prefix .. "last_code", code)
  set(work, prefix .. "last_error", reason)
  if code == "provider_unavailable" or code == "store_unavailable" then uncount_attempt(work, prefix) end
  drop_lease(head, lane)
  make_due(lane, id, at)
  save_work(head, work)
end

local head = load(HEAD)
if not holds(head, lane, token, id) then return LOST end
local work, prefix = current_work(head, lane)
if ARGV[6] ~= "" then try_again_later(head, work, prefix) else FAIL[lane](head, work, code, reason) end
save_head(head)
return {"held", not IS_JOB[lane] and ready_turn(head) or ""}
