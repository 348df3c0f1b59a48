#!lua flags=no-writes
-- A turn's events, and the deltas that belong among them by their numbers.
-- KEYS[1] the events, [2] the deltas   ARGV[1] from where on (as XRANGE takes it), [2] how many of each at most
-- Returns {events, deltas}.
return {
  call("XRANGE", KEYS[1], ARGV[1], "+", "COUNT", ARGV[2]),
  call("XRANGE", KEYS[2], ARGV[1], "+", "COUNT", ARGV[2]),
}
