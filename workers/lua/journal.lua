#!lua flags=no-writes
-- The session's newest digests.
-- KEYS of the session   ARGV[1] how many at most
-- Returns {digests, newest first: id, digest, id, digest; ids of the unpublished}; none of an unknown session.
if not is_session_there() then return {{}, {}} end
return {newest_digests(JOURNAL, DIGESTS, ARGV[1]), call("ZRANGE", UNPUBLISHED, 0, -1)}
