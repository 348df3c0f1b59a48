#!lua flags=allow-oom
-- Ask for a rotation, whatever the back-off says.
-- KEYS of the session   ARGV[1] reason
-- Returns the id of the pending rotation, requested now if there was none; false for an unknown session.
local head = load(HEAD)
if not is_there(head) then return false end
local id = request_rotation(head, ARGV[1])
save_head(head)
return id
