#!lua flags=no-writes
-- Read the session as it is now: only what the worker does not have.
-- KEYS of the session   ARGV[1] layout token, [2] first and [3] next sequence number of its live entries (0: none),
-- [4] commit token of the last
-- Returns the snapshot, or false for an unknown session.
local head = load(HEAD)
if not is_there(head) then return false end
return snapshot(head, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4])
