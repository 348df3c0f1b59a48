#!lua flags=allow-oom
-- What is overdue in a partition, oldest first, each marked swept: its next time moves forward, doubling. An orphan that
-- was swept often enough is given up in the place of that.
-- KEYS of the partition   ARGV[1] how many at most
-- Returns members "kind|session|id".
local limit = tonumber(ARGV[1])
local LONGEST = math.max(LIMITS.lease_seconds, LIMITS.sweep_last_seconds, LONGEST_RETRY_SECONDS)

-- A clock that stood ahead left scores that nothing legal reaches.
local function pull_back()
  local latest = text(NOW + LONGEST)
  for _, member in ipairs(call("ZRANGEBYSCORE", DUE, "(" .. latest, "+inf", "LIMIT", 0, limit)) do
    call("ZADD", DUE, latest, member)
  end
end

local function overdue(key)
  local flat, found = call("ZRANGEBYSCORE", key, "-inf", text(NOW), "WITHSCORES", "LIMIT", 0, limit), {}
  for i = 1, #flat, 2 do found[#found + 1] = {key = key, member = flat[i], at = tonumber(flat[i + 1])} end
  return found
end

local function give_up(item)
  call("ZREM", item.key, item.member)
  call("HDEL", SWEEPS, item.member)
end

local function mark_swept(item, sweeps)
  local wait = math.min(LIMITS.sweep_first_seconds * 2 ^ math.min(sweeps, 32), LIMITS.sweep_last_seconds)
  local at = text(NOW + wait)
  call("ZADD", item.key, at, item.member)
  call("HSET", SWEEPS, item.member, text(sweeps + 1) .. " " .. at)
end

pull_back()
local items = overdue(DUE)
for _, item in ipairs(overdue(TIMERS)) do items[#items + 1] = item end
table.sort(items, function(a, b) return a.at < b.at or (a.at == b.at and a.member < b.member) end)
local members = {}
for i = 1, math.min(limit, #items) do
  local item = items[i]
  local sweeps = sweeps_of(item.member, item.at)
  if sweeps >= LIMITS.orphan_sweeps and string.match(item.member, "^orphan|") then
    give_up(item)
  else
    mark_swept(item, sweeps)
    members[#members + 1] = item.member
  end
end
return members
