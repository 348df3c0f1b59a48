#!lua flags=no-writes
-- What is known of a turn.
-- KEYS of the session   ARGV[1] turn id
-- Returns its fields, none for an unknown or forgotten turn or session.
if not is_there(load(HEAD)) then return {} end
local turn = load_turn(ARGV[1])
if not turn.exists then return {} end
local large = call("HMGET", turn.key, "answer", "rotations")
turn.fields.answer, turn.fields.rotations = large[1] or "", large[2] or ""
return flattened(turn.fields)
