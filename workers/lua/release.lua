#!lua flags=allow-oom
-- Give a lane back: its work is due now, and the next begin counts no attempt for it.
-- KEYS of the session   ARGV[1] lane, [2] token, [3] work id
-- Returns 1, or 0 when the lane was not the caller's. Harmless twice.
local lane, token, id = ARGV[1], ARGV[2], ARGV[3]

local head = load(HEAD)
if not holds(head, lane, token, id) then return 0 end
local work, prefix = current_work(head, lane)
uncount_attempt(work, prefix)
save_work(head, work)
drop_lease(head, lane)
make_due(lane, id, NOW)
save_head(head)
return 1
