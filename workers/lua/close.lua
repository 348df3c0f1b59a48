#!lua flags=allow-oom
-- Refuse new turns; with "1" end the accepted ones and drop the rotation.
-- KEYS of the session   ARGV[1] "1" for now
-- Returns 1, or false for an unknown session. Harmless twice.
local head = load(HEAD)
if not is_there(head) then return false end
if get(head, "state") == "open" then
  set(head, "state", "closed")
  count_braked(head)
  note("closed", "{}")
  rest(head)
end
if ARGV[1] == "1" then
  for _, id in ipairs(unfinished_ids(head, "turn")) do
    fail_turn(head, load_turn(id), "closed", "its session was closed")
  end
  if get(head, "rotation") ~= "" then cancel_rotation(head) end
end
save_head(head)
return 1
