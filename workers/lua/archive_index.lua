#!lua flags=no-writes
-- The newest archive chunks without their data: of a member only what stands before it.
-- KEYS of the session   ARGV[1] how many at most
-- Returns "<first sequence number>\n<last>\n<epoch>" of each, newest first.
local limit, refs = tonumber(ARGV[1]), {}
if limit == 0 or not is_session_there() then return refs end
for i, member in ipairs(call("ZREVRANGE", ARCHIVE, 0, limit - 1)) do
  refs[i] = string.match(member, "^%d+\n%d+\n%d+")
end
return refs
