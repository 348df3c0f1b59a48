#!lua flags=allow-oom
-- End a turn that is not finished.
-- KEYS of the session   ARGV[1] turn id
-- Returns {"state", the turn's state now}, or {error code}. A second call changes nothing.
local id = ARGV[1]

local head, turn = load(HEAD), load_turn(id)
if not is_there(head) then return {"unknown_session"} end
if not turn.exists then return {"invalid_input"} end
local state = get(turn, "state")
if state == "queued" or state == "running" then
  cancel_turn(head, turn, "cancelled", "it was cancelled")
  save_head(head)
end
return {"state", get(turn, "state")}
