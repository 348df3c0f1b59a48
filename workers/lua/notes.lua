#!lua flags=no-writes
-- Names and sizes of the notes.
-- KEYS of the session
-- Returns name, size in bytes, name, size.
if not is_session_there() then return {} end
return note_sizes()
