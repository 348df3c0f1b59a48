#!lua flags=allow-oom
-- Grant the next handoff, or the digest, to a token, with all that is needed for it.
-- KEYS of the session   ARGV[1] lane, [2] token, and what the worker has: [3] layout token, [4] first and [5] next
-- sequence number of its live entries (0: none), [6] commit token of the last
-- Ends jobs that cannot go on, and goes on to the next: keys of these jobs are named from the tag.
-- Returns {"granted", now, snapshot, steps, job}, or {refusal}.
-- Sent twice, the second finds its token in the head and gets the same grant; nothing is counted.
return grant_next(({
  handoff = {ready = ready_handoff, bar = obstacle, fail = fail_handoff, take = start, large = "request"},
  digest = {bar = obstacle, fail = fail_digest, take = start},
})[ARGV[1]])
