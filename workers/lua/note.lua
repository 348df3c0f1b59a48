#!lua flags=no-writes
-- One note.
-- KEYS of the session   ARGV[1] its name
-- Returns its text; false if there is none.
return is_session_there() and call("HGET", NOTES, TEXT .. ARGV[1])
