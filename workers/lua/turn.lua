#!lua flags=no-writes
-- What is known of a turn.
-- KEYS of the session   ARGV[1] turn id
-- Returns its fields, none for an unknown or forgotten turn or session.
if not is_there(load(HEAD)) then return {} end
return call("HGETALL", turn_key(ARGV[1]))
