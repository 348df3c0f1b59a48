-- What every script shares; the loader puts it, and the store's constants (HINTS, LIMITS), before each script.
--
-- Keys are those of workers/keys.py, in its order, all of one hash tag:
--   KEYS[1..6]   the partition: due, timers, sweeps, counters (hash), index, agents
--   KEYS[7..15]  the session: head, layout, live, inbox, steps of the turn and of the rotation lane, archive,
--                audit, turns
-- Keys of single turns are named from the same tag, for a script may go on to a turn that its caller does not know.
--
-- Values that Lua only carries (entries, inputs, answers, records, handles) are text made and read in Python. A hash
-- is read once, changed in memory, and written once at the end (`save`), so nothing is written before all is checked.

local DUE, TIMERS, SWEEPS, COUNTERS, INDEX, AGENTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local HEAD, LAYOUT, LIVE, INBOX = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local STEPS = {turn = KEYS[11], rotation = KEYS[12]}
local ARCHIVE, AUDIT, TURNS = KEYS[13], KEYS[14], KEYS[15]
local TAG, SESSION = "", ""
if HEAD then TAG, SESSION = string.match(HEAD, "^(.-}:)head:(.*)$") end

local call = redis.call
local clock = call("TIME")
local NOW = tonumber(clock[1]) + tonumber(clock[2]) / 1e6

-- The furthest that a retry may lie ahead, and the rotations running without gain after which the line is left alone:
-- as in sessionlib/stores/rules.
local LONGEST_RETRY_SECONDS = 300
local NO_GAIN_LIMIT = 2

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

-- Due members -------------------------------------------------------------------------------------------------------

-- What a sweep may find ready has a longest interval and lies in `due`; what waits for a time of its own in `timers`.
local IS_TIMER = {open_calls = true, retention = true}

local function member_of(kind, id) return kind .. "|" .. SESSION .. "|" .. id end

-- Make or move a member. A sweep finds it moved, and begins to count anew.
local function make_due(kind, id, at) call("ZADD", IS_TIMER[kind] and TIMERS or DUE, text(at), member_of(kind, id)) end

local function not_due(kind, id)
  call("ZREM", IS_TIMER[kind] and TIMERS or DUE, member_of(kind, id))
  call("HDEL", SWEEPS, member_of(kind, id))
end

-- Events, audit, counters -------------------------------------------------------------------------------------------

local function turn_key(id) return TAG .. "turn:" .. SESSION .. "|" .. id end

local function events_key(id) return TAG .. "events:" .. SESSION .. "|" .. id end

-- JSON of a string: what Redis and fakeredis encode alike.
local function quoted(value) return cjson.encode(value) end

local function tell(turn_id, kind, data)
  call("XADD", events_key(turn_id), "*", "kind", kind, "data", data)
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

local function work_of(head, lane) return get(head, lane == "turn" and "turn:work" or "rotation") end

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

-- Turns -------------------------------------------------------------------------------------------------------------

-- What scripts read of a turn: all but its input and answer, which may be large.
local TURN_FIELDS = {
  "state", "digest", "result_ids", "timeout_seconds", "open_calls_seconds", "is_own", "deadline", "attempts", "progress",
  "not_before", "last_code", "last_error", "step_base", "rounds", "commit_token", "first_seq", "last_seq", "input_seq",
  "error_code", "error", "submitted", "finished",
}

local function load_turn(id)
  local key, fields = turn_key(id), {}
  for i, value in ipairs(call("HMGET", key, unpack(TURN_FIELDS))) do fields[TURN_FIELDS[i]] = value or nil end
  return {id = id, key = key, exists = fields.state ~= nil, fields = fields, changed = {}}
end

local function calls_wait(head) return get(head, "open_calls") ~= "" and get(head, "abandoned") == "" end

local function is_results(turn_id) return (call("HGET", turn_key(turn_id), "result_ids") or "") ~= "" end

-- The turn that may begin now, or nil: the front, unless a turn is at work or open calls wait for other results.
local function ready_turn(head)
  if get(head, "turn:work") ~= "" then return nil end
  local front = call("LINDEX", INBOX, 0)
  if not front then return nil end
  if calls_wait(head) and not is_results(front) then return nil end
  return front
end

local function offer_next(head)
  local id = ready_turn(head)
  if id then make_due("turn", id, NOW) end
end

local function abandon_calls(head, why)
  if not calls_wait(head) then return end
  set(head, "abandoned", why)
  not_due("open_calls", "")
end

-- Handles of provider sessions to let go of, oldest first: lines "<turn it waits for>\t<name>\t<handle>" in the head.
-- Name and handle are JSON, so neither holds a tab or a line's end.
local function disposals_of(head)
  local list = {}
  for waits_for, name, handle in string.gmatch(get(head, "disposals"), "([^\t\n]*)\t([^\t\n]*)\t([^\n]*)") do
    list[#list + 1] = {waits_for = waits_for, name = name, handle = handle}
  end
  return list
end

local function set_disposals(head, list)
  local lines, is_due = {}, false
  for i, disposal in ipairs(list) do
    lines[i] = disposal.waits_for .. "\t" .. disposal.name .. "\t" .. disposal.handle
    is_due = is_due or disposal.waits_for == ""
  end
  set(head, "disposals", table.concat(lines, "\n"))
  set(head, "disposal_is_due", is_due and "1" or "")
end

local function is_disposed(head, name)
  for _, disposal in ipairs(disposals_of(head)) do
    if disposal.name == name then return true end
  end
  return false
end

local function dispose(head, name, handle, waits_for)
  local list = disposals_of(head)
  list[#list + 1] = {waits_for = waits_for, name = name, handle = handle}
  set_disposals(head, list)
  if waits_for == "" then make_due("disposal", "", NOW) end
end

local function free_disposals(head, turn_id)
  local list, is_freed = disposals_of(head), false
  for _, disposal in ipairs(list) do
    if disposal.waits_for == turn_id then disposal.waits_for, is_freed = "", true end
  end
  if not is_freed then return end
  set_disposals(head, list)
  make_due("disposal", "", NOW)
end

-- A turn with results runs, or stands at the front.
local function has_results_turn(head)
  local first = get(head, "turn:work")
  if first == "" then first = call("LINDEX", INBOX, 0) end
  return first and is_results(first)
end

-- Unfinished turns, the running one last: ended in this order, none is made due on the way.
local function unfinished_turns(head)
  local ids = call("LRANGE", INBOX, 0, -1)
  if get(head, "turn:work") ~= "" then ids[#ids + 1] = get(head, "turn:work") end
  return ids
end

-- Where the fortunes of a lane's work are kept: deadline, attempts and so on, a rotation's in the head.
local function work_and_prefix(head, lane)
  if lane == "turn" then return load_turn(get(head, "turn:work")), "" end
  return head, "rotation:"
end

-- The next begin adds one again.
local function uncount_attempt(work, prefix)
  set(work, prefix .. "attempts", math.max(0, number(work, prefix .. "attempts") - 1))
end

local function retire_if_idle(head)
  if get(head, "state") ~= "closed" or get(head, "retention_seconds") == "" then return end
  if get(head, "turn:work") ~= "" or call("LLEN", INBOX) > 0 then return end
  if call("ZSCORE", TIMERS, member_of("retention", "")) then return end
  make_due("retention", "", NOW + number(head, "retention_seconds"))
end

-- End a turn by whatever: *ending* has state, kind and data of the last event, and code and error if it failed.
local function end_turn(head, turn, ending)
  if get(turn, "state") == "running" then
    drop_lease(head, "turn")
    set(head, "turn:work", "")
    call("DEL", STEPS.turn)
  else
    call("LREM", INBOX, 1, turn.id)
  end
  set(turn, "state", ending.state)
  set(turn, "finished", NOW)
  set(turn, "error_code", ending.code or "")
  set(turn, "error", ending.error or "")
  save(turn)
  not_due("turn", turn.id)
  tell(turn.id, ending.kind, ending.data)
  hint_end(turn.id)
  local life_ms = string.format("%.0f", LIMITS.idempotency_seconds * 1000)
  call("PEXPIRE", turn.key, life_ms)
  call("PEXPIRE", events_key(turn.id), life_ms)
  call("ZADD", TURNS, text(NOW + LIMITS.idempotency_seconds), turn.id)
  count("unfinished", -1)
  count(ending.state, 1)
  if get(turn, "result_ids") ~= "" and number(turn, "rounds") == 0 then abandon_calls(head, ending.code) end
  free_disposals(head, turn.id)
  offer_next(head)
  if ending.state == "failed" then
    note("turn_failed", '{"turn_id":' .. quoted(turn.id) .. ',"code":' .. quoted(ending.code) .. "}")
  end
  retire_if_idle(head)
end

local function fail_turn(head, turn, code, why)
  local data = '{"code":' .. quoted(code) .. ',"reason":' .. quoted(why) .. "}"
  end_turn(head, turn, {state = "failed", code = code, error = why, kind = "failed", data = data})
end

local function cancel_turn(head, turn, code, why)
  local data = '{"code":' .. quoted(code) .. "}"
  end_turn(head, turn, {state = "cancelled", code = code, error = why, kind = "cancelled", data = data})
end

-- Rotations ---------------------------------------------------------------------------------------------------------

-- The pending rotation's id, requested now if there is none, by the write with token *by*.
local function request_rotation(head, reason, by)
  if get(head, "rotation") ~= "" then return get(head, "rotation") end
  add(head, "rotation_counter", 1)
  local id = "r" .. get(head, "rotation_counter")
  set(head, "rotation", id)
  set(head, "rotation:reason", reason)
  set(head, "rotation:by", by or "")
  make_due("rotation", id, NOW)
  return id
end

-- Request a rotation if the line is reached and no back-off holds.
local function check_line(head, line_tokens, by)
  count_fill(head, line_tokens)
  if conversation_tokens(head) < line_tokens or number(head, "backoff_until") > NOW then return end
  request_rotation(head, "line", by)
end

local ROTATION_FIELDS = {
  "rotation", "rotation:reason", "rotation:by", "rotation:boundary", "rotation:attempts", "rotation:progress",
  "rotation:not_before", "rotation:deadline", "rotation:step_base", "rotation:last_code", "rotation:last_error",
  "rotation:token", "rotation:lease",
}

local function clear_rotation(head)
  not_due("rotation", get(head, "rotation"))
  call("DEL", STEPS.rotation)
  for _, field in ipairs(ROTATION_FIELDS) do set(head, field, "") end
end

local function cancel_rotation(head)
  note("rotation_cancelled", '{"id":' .. quoted(get(head, "rotation")) .. "}")
  clear_rotation(head)
end

-- The pending rotation, if the write with token *by* requested it and nobody claimed it yet: to be dispatched.
local function requested_rotation(head, by)
  return get(head, "rotation:by") == by and get(head, "rotation:deadline") == "" and get(head, "rotation") or ""
end

local function back_off(head, code)
  set(head, "backoff_until", NOW + LIMITS.no_gain_backoff_seconds)
  set(head, "backoff_reason", code)
end

local function count_no_gain(head)
  add(head, "no_gain", 1)
  if number(head, "no_gain") >= NO_GAIN_LIMIT then back_off(head, "no_gain") end
end

local function fail_rotation(head, code)
  note("rotation_failed", '{"id":' .. quoted(get(head, "rotation")) .. ',"code":' .. quoted(code) .. "}")
  clear_rotation(head)
  if code == "no_gain" then count_no_gain(head) else back_off(head, code) end
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
