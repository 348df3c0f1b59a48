#!lua flags=allow-oom
-- Append an event to the granted turn's stream.
-- KEYS of the session   ARGV[1] the turn lane, [2] token, [3] turn id, [4] kind, [5] data (JSON)
-- Returns {"held"} or LOST. Sent twice, the event may stand there twice: it is progress, and decides nothing.
local _, token, id, kind, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local head = load(HEAD)
if not holds(head, "turn", token, id) then return LOST end
tell(id, kind, data)
renew(head, "turn")
save_head(head)
return {"held"}
