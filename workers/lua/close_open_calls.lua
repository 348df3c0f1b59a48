#!lua flags=allow-oom
-- The open calls waited long enough: the next turn closes them.
-- KEYS of the session
-- Returns 1, or 0 when none waited, or their results are there.
local head = load(HEAD)
if not is_there(head) or not calls_wait(head) or has_results_turn(head) then return 0 end
abandon_calls(head, "timeout")
offer_next(head)
save_head(head)
return 1
