#!lua flags=allow-oom
-- Put a digest into the journal of an agent.
-- KEYS of the agent's partition, then [7] its journal and [8] the digests there   ARGV[1] name of the digest
-- ("<session>|<id>"), [2] when it was accepted, [3] digest
-- Returns 1. Sent twice, the second writes what is there.
put_digest(KEYS[7], KEYS[8], ARGV[1], ARGV[2], ARGV[3])
for i = 7, 8 do call("PEXPIRE", KEYS[i], string.format("%.0f", LIMITS.journal_seconds * 1000)) end
return 1
