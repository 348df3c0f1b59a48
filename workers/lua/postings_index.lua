#!lua flags=no-writes
-- What postings there are.
-- KEYS of the session
-- Returns "<first sequence number> <last> <level> <number of parts>" of each, oldest first.
if not is_session_there() then return {} end
return call("ZRANGE", POSTINGS_INDEX, 0, -1)
