#!lua flags=allow-oom
-- The session's digests that the agent's journal is to have and may not have yet. With none, nothing is due.
-- KEYS of the session
-- Returns id, digest, id, digest, newest first; none of an unknown session. Harmless twice.
local head = load(HEAD)
if not is_there(head) then return {} end
prune_unpublished(head)
return newest_digests(UNPUBLISHED, DIGESTS, -1)
