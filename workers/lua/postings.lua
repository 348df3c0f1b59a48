#!lua flags=no-writes
-- Parts of postings.
-- KEYS of the session   ARGV[1…] each as "<last sequence number of the postings>:<part>"
-- Returns them in the same order, "" for what is not there.
local parts, is_there_at_all = {}, is_session_there()
for from = 1, #ARGV, 1000 do
  local names = {unpack(ARGV, from, math.min(from + 999, #ARGV))}
  local found = is_there_at_all and call("HMGET", POSTINGS, unpack(names)) or {}
  for i = 1, #names do parts[#parts + 1] = found[i] or "" end
end
return parts
