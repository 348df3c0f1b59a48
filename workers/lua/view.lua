#!lua flags=no-writes
-- A session's figures.
-- KEYS of the session
-- Returns {now, fields of the head, queued turns}, or false for an unknown session.
local head = load(HEAD)
if not is_there(head) then return false end
return {text(NOW), flattened(head.fields), call("LRANGE", INBOX, 0, -1)}
