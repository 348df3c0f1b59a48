#!lua flags=allow-oom
-- Drop a pending or running rotation.
-- KEYS of the session
-- Returns 1, or 0 when there was none; false for an unknown session.
local head = load(HEAD)
if not is_there(head) then return false end
if get(head, "rotation") == "" then return 0 end
cancel_rotation(head)
save_head(head)
return 1
