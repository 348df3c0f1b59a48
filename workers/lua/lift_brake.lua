#!lua flags=allow-oom
-- Let a session under `work_room` begin fresh windows again.
-- KEYS of the session
-- Returns 1, or 0 when it was not braked; false for an unknown session.
local head = load(HEAD)
if not is_there(head) then return false end
local room = get(head, "room")
if not is_braked(room) then return 0 end
set(head, "room", unbraked(room))
count_braked(head)
set(head, "lifted_under", get(head, "turn:token"))
note("brake_lifted", "{}")
save_head(head)
return 1
