#!lua flags=no-writes
-- What is known of a turn. Callers look often: what they do not read (the input, which may be large) stays here.
-- KEYS of the session   ARGV[1] turn id
-- Returns its fields, none for an unknown or forgotten turn or session.
if not is_session_there() then return {} end
return pick(key_of("turn", ARGV[1]), {
  "state", "answer", "rotations", "error_code", "error", "attempts", "rounds", "first_seq", "last_seq", "submitted",
  "finished",
})
