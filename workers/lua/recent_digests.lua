#!lua flags=no-writes
-- The newest digests of an agent's sessions.
-- KEYS of the agent's partition, then [7] its journal and [8] the digests there   ARGV[1] how many at most
-- Returns name, digest, name, digest, newest first.
return newest_digests(KEYS[7], KEYS[8], ARGV[1])
