#!lua flags=allow-oom
-- Extend a lane's lease, up to the deadline of its work.
-- KEYS of the session   ARGV[1] lane, [2] token, [3] work id
-- Returns {"held"}; LOST too when the deadline passed. Harmless twice.
local lane, token, id = ARGV[1], ARGV[2], ARGV[3]

local head = load(HEAD)
if not holds(head, lane, token, id) then return LOST end
local work, prefix = current_work(head, lane)
if NOW >= number(work, prefix .. "deadline") then return LOST end
renew(head, lane)
save_head(head)
return {"held"}
