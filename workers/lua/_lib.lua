-- What scripts share. The loader puts before each what it needs of this and the other `_*.lua`, and before that the
-- store's constants (HINTS, LIMITS).
--
-- Keys are those of workers/keys.py, in its order, all of one hash tag:
--   KEYS[1..6]   the partition: due, timers, sweeps, counters (hash), index, agents
--   KEYS[7..25]  the session: head, layout, live, inbox, waiting handoffs, steps of each lane, archive, audit, turns,
--                jobs, journal, digests, unpublished, postings, their index, notes
-- Keys of single turns and jobs are named from the same tag: a script may go on to one that its caller does not know.
-- Scripts on an agent's journal have its keys in place of a session's.
--
-- Values that Lua only carries (entries, inputs, answers, records, handles) are text made and read in Python. A hash
-- is read once, changed in memory, and written once at the end (`save`), so nothing is written before all is checked.

local DUE, TIMERS, SWEEPS, COUNTERS, INDEX, AGENTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local HEAD, LAYOUT, LIVE, INBOX, HANDOFFS = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local STEPS = {turn = KEYS[12], rotation = KEYS[13], handoff = KEYS[14], digest = KEYS[15]}
local ARCHIVE, AUDIT, TURNS, JOBS = KEYS[16], KEYS[17], KEYS[18], KEYS[19]
local JOURNAL, DIGESTS, UNPUBLISHED = KEYS[20], KEYS[21], KEYS[22]
local POSTINGS, POSTINGS_INDEX, NOTES = KEYS[23], KEYS[24], KEYS[25]
local TAG, SESSION = "", ""
if HEAD then TAG, SESSION = string.match(HEAD, "^(.-}:)head:(.*)$") end

local call = redis.call
local clock = call("TIME")
local NOW = tonumber(clock[1]) + tonumber(clock[2]) / 1e6

-- The furthest that a retry may lie ahead: as in sessionlib/stores/rules.
local LONGEST_RETRY_SECONDS = 300

-- Numbers as text: Lua's own form keeps 14 digits, too few for a time in microseconds.
local function text(value)
  if type(value) ~= "number" then return value end
  if value == math.floor(value) then return string.format("%d", value) end
  return string.format("%.6f", value)
end

-- Hashes ------------------------------------------------------------------------------------------------------------

local function load(key)
  local flat, fields = call("HGETALL", key), {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return {key = key, exists = #flat > 0, fields = fields, changed = {}}
end

local function get(hash, field) return hash.fields[field] or "" end

local function number(hash, field) return tonumber(hash.fields[field]) or 0 end

local function set(hash, field, value)
  value = text(value)
  if get(hash, field) == value then return end
  hash.fields[field], hash.changed[field] = value, value
end

local function add(hash, field, amount) set(hash, field, number(hash, field) + amount) end

local function flattened(fields)
  local flat = {}
  for field, value in pairs(fields) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  return flat
end

local function save(hash)
  local flat = flattened(hash.changed)
  if #flat > 0 then call("HSET", hash.key, unpack(flat)) end
  hash.changed = {}
end

-- Turns whose hint goes out when the head is saved, each once, and whether it ended; "" is for those who watch the
-- session.
local hints = {}

local function hint(turn_id) hints[turn_id] = hints[turn_id] or "" end

local function hint_end(turn_id) hints[turn_id] = "|ended" end

local function save_head(head)
  if next(head.changed) then
    set(head, "updated", NOW)
    save(head)
  end
  for turn_id, ending in pairs(hints) do call("PUBLISH", HINTS, SESSION .. "|" .. turn_id .. ending) end
end

local function is_there(head) return head.exists and get(head, "purged") == "" end

-- The same for those who read nothing else of the head.
local function is_session_there()
  local state, purged = unpack(call("HMGET", HEAD, "state", "purged"))
  return state and (purged or "") == ""
end

-- The named fields of a hash as far as it has them: field, value, field, value.
local function pick(key, names)
  local flat = {}
  for i, value in ipairs(call("HMGET", key, unpack(names))) do
    if value then flat[#flat + 1], flat[#flat + 2] = names[i], value end
  end
  return flat
end

-- Due members -------------------------------------------------------------------------------------------------------

-- What a sweep may find ready has a longest interval and lies in `due`; what waits for a time of its own in `timers`.
local IS_TIMER = {open_calls = true, retention = true, capture = true}

local function due_key(kind) return IS_TIMER[kind] and TIMERS or DUE end

local function member_of(kind, id) return kind .. "|" .. SESSION .. "|" .. id end

-- Make or move a member. A sweep finds it moved, and begins to count anew.
local function make_due(kind, id, at) call("ZADD", due_key(kind), text(at), member_of(kind, id)) end

local function not_due(kind, id)
  call("ZREM", due_key(kind), member_of(kind, id))
  call("HDEL", SWEEPS, member_of(kind, id))
end

-- When a member is due; nil without one.
local function due_at(kind, id) return tonumber(call("ZSCORE", due_key(kind), member_of(kind, id))) end

-- How often a member that is due *at* was swept since anything else moved it: kept as "<times> <where that moved it>".
local function sweeps_of(member, at)
  local times, moved_to = string.match(call("HGET", SWEEPS, member) or "", "^(%d+) (.*)$")
  return times and tonumber(moved_to) == at and tonumber(times) or 0
end

-- Whether a member's time has come, or had come when it was last swept.
local function is_overdue(kind, id)
  local at = due_at(kind, id)
  return at and (at <= NOW or sweeps_of(member_of(kind, id), at) > 0)
end

-- Events, audit, counters -------------------------------------------------------------------------------------------

-- The key of a turn, of its events or deltas, or of a job, which is named by its lane.
local function key_of(kind, id) return TAG .. kind .. ":" .. SESSION .. "|" .. id end

-- JSON of a string: what Redis and fakeredis encode alike.
local function quoted(value) return cjson.encode(value) end

-- A JSON object with further fields, given as JSON without their braces.
local function with_fields(object, fields)
  local opened = string.gsub(object, "%s*}%s*$", "")
  local separator = string.match(opened, "^%s*{%s*$") and "" or ","
  return opened .. separator .. fields .. "}"
end

local function tell(turn_id, kind, data)
  call("XADD", key_of("events", turn_id), "*", "kind", kind, "data", data)
  hint(turn_id)
end

local function note(kind, data)
  call("XADD", AUDIT, "MAXLEN", LIMITS.audit_limit, "*", "kind", kind, "data", data)
  hint("")
end

local function count(counter, amount) call("HINCRBY", COUNTERS, counter, amount) end

local function conversation_tokens(head)
  return number(head, "live_tokens") + number(head, "record_tokens") + number(head, "carried_tokens")
end

-- How full a session is, in tenths of its rotation line, 10 from the line on: one counter a band.
local function count_fill(head, line_tokens)
  local band = 10
  if line_tokens > 0 then band = math.min(10, math.floor(10 * conversation_tokens(head) / line_tokens)) end
  local before = get(head, "fill_band")
  if before == text(band) then return end
  if before ~= "" then count("fill:" .. before, -1) end
  count("fill:" .. text(band), 1)
  set(head, "fill_band", band)
end

-- Lanes -------------------------------------------------------------------------------------------------------------

local LANES = {"turn", "rotation", "handoff", "digest"}

-- The head's field with the id of a lane's work: the turn or handoff that began and is not finished, the rotation or
-- digest that is unfinished, begun or not.
local WORK = {turn = "turn:work", rotation = "rotation", handoff = "handoff:work", digest = "digest:work"}

-- Lanes that read the session and change nothing that a turn or rotation sees.
local IS_JOB = {handoff = true, digest = true}

-- Where a lane's work waits in order. A rotation or digest waits for nothing: there is one at most.
local QUEUES = {turn = INBOX, handoff = HANDOFFS}

local function work_of(head, lane) return get(head, WORK[lane]) end

local function holds(head, lane, token, id)
  return is_there(head) and token ~= "" and get(head, lane .. ":token") == token and work_of(head, lane) == id
end

-- The answer to whoever does not hold the lane.
local LOST = {"lease_lost"}

-- Extend the lease: every write under a token does.
local function renew(head, lane)
  local lease = NOW + LIMITS.lease_seconds
  set(head, lane .. ":lease", lease)
  make_due(lane, work_of(head, lane), lease)
end

local function drop_lease(head, lane)
  set(head, lane .. ":token", "")
  set(head, lane .. ":lease", "")
end

-- The lane's work is finished.
local function leave_lane(head, lane)
  drop_lease(head, lane)
  set(head, WORK[lane], "")
  call("DEL", STEPS[lane])
end

-- A lane's unfinished work, what began last: ended in this order, none is made due on the way.
local function unfinished_ids(head, lane)
  local ids = QUEUES[lane] and call("LRANGE", QUEUES[lane], 0, -1) or {}
  if work_of(head, lane) ~= "" then ids[#ids + 1] = work_of(head, lane) end
  return ids
end

local function count_unfinished(head, lane)
  return call("LLEN", QUEUES[lane]) + (work_of(head, lane) ~= "" and 1 or 0)
end

-- What scripts read of a turn or a job: all but what may be large (input and answer, request and result).
local function fields_of(lane)
  if IS_JOB[lane] then
    return {
      "state", "digest", "reason", "first_seq", "last_seq", "timeout_seconds", "deadline", "attempts", "progress",
      "not_before", "last_code", "last_error", "step_base", "settle_token",
    }
  end
  return {
    "state", "digest", "result_ids", "timeout_seconds", "open_calls_seconds", "is_own", "is_streamed", "deadline",
    "attempts", "progress", "not_before", "last_code", "last_error", "step_base", "handles", "rounds", "commit_token",
    "first_seq", "last_seq", "input_seq",
  }
end

-- A turn or a job.
local function load_work(lane, id)
  local key, names, fields = key_of(lane, id), fields_of(lane), {}
  for i, value in ipairs(call("HMGET", key, unpack(names))) do fields[names[i]] = value or nil end
  return {id = id, key = key, exists = fields.state ~= nil, fields = fields, changed = {}}
end

-- What a lane is at work on, and how the fields of its fortunes begin (deadline, attempts and so on): a rotation's are
-- in the head.
local function current_work(head, lane)
  if lane == "rotation" then return head, "rotation:" end
  return load_work(lane, work_of(head, lane)), ""
end

local function save_work(head, work)
  if work ~= head then save(work) end
end

-- The next begin adds one again.
local function uncount_attempt(work, prefix)
  set(work, prefix .. "attempts", math.max(0, number(work, prefix .. "attempts") - 1))
end

-- What is finished is known for a while: from now on its keys have a lifetime, which *index* tells.
local function expire(index, id, keys)
  local life_ms = string.format("%.0f", LIMITS.idempotency_seconds * 1000)
  for _, key in ipairs(keys) do call("PEXPIRE", key, life_ms) end
  call("ZADD", index, text(NOW + LIMITS.idempotency_seconds), id)
end

-- New work: *index* names it until its keys have expired.
local function remember(index, id)
  call("ZREMRANGEBYSCORE", index, "-inf", text(NOW))
  call("ZADD", index, "+inf", id)
end

-- Snapshots ---------------------------------------------------------------------------------------------------------

local function commit_token_of(element) return string.match(element, "^[^\n]*\n([^\n]*)\n") end

local function size_of(element) return tonumber(string.match(element, "^(%d+)\n")) end

-- The session for a worker that has the layout *layout_token* and the entries from *first_seq* to before *next_seq*,
-- the last under commit token *tail_token*. Returns the head's fields, records and carried input (false if it has
-- them), the sequence number of the first entry sent, and the entries.
local function snapshot(head, layout_token, first_seq, next_seq, tail_token)
  local from, first = number(head, "live_from"), number(head, "live_from")
  if first_seq <= from and next_seq > from and next_seq <= number(head, "next_seq") then
    local last = call("LINDEX", LIVE, text(next_seq - 1 - from))
    if last and commit_token_of(last) == tail_token then first = next_seq end
  end
  local layout = false
  if layout_token ~= get(head, "layout_token") then layout = call("HMGET", LAYOUT, "records", "carried") end
  return {flattened(head.fields), layout, text(first), call("LRANGE", LIVE, text(first - from), -1)}
end
