-- Granting a lane's next work: what `begin` (turns, rotations) and `begin_job` have in common.
--
-- ARGV[1] lane, [2] token, and what the worker has: [3] layout token, [4] first and [5] next sequence number of its
-- live entries (0: none), [6] commit token of the last
-- Returns {"granted", now, snapshot, steps, turn or job (false for a rotation)}, or {refusal}.
-- Sent twice, the second finds its token in the head and gets the same grant; nothing is counted.

-- Turns or handoffs that one call may end on its way; the reaper comes again for the rest.
local ENDED_LIMIT = 32

-- *large*: the field of the work that only its holder reads.
local function granted(head, work, large)
  if large then work.fields[large] = call("HGET", work.key, large) end
  local parts = snapshot(head, ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6])
  return {"granted", text(NOW), parts, call("LRANGE", STEPS[ARGV[1]], 0, -1), work ~= head and flattened(work.fields)}
end

-- What bars the next grant: a code and why the work ends; "wait"; or nothing.
local function obstacle(work, prefix)
  local attempts, last_error = text(number(work, prefix .. "attempts")), ""
  if get(work, prefix .. "last_code") ~= "" then
    last_error = "; the last error: " .. get(work, prefix .. "last_code") .. ": " .. get(work, prefix .. "last_error")
  end
  local deadline = number(work, prefix .. "deadline")
  if deadline > 0 and NOW >= deadline then
    return "deadline", "its deadline passed after " .. attempts .. " attempts" .. last_error
  end
  if number(work, prefix .. "not_before") > NOW then return "wait" end
  if get(work, prefix .. "progress") == "" and number(work, prefix .. "attempts") >= LIMITS.max_attempts then
    return "dead_lettered", attempts .. " attempts without progress" .. last_error
  end
end

-- An attempt counts only if the last grant saw no progress. The first grant sets the deadline.
local function count_grant(work, prefix, timeout_seconds)
  if get(work, prefix .. "progress") == "1" then set(work, prefix .. "attempts", 0) end
  add(work, prefix .. "attempts", 1)
  set(work, prefix .. "progress", "")
  set(work, prefix .. "not_before", "")
  if number(work, prefix .. "deadline") == 0 then set(work, prefix .. "deadline", NOW + timeout_seconds) end
end

-- Work that waited is at work from its first grant on.
local function start(head, work)
  local lane = ARGV[1]
  if get(work, "state") ~= "queued" then return end
  if QUEUES[lane] then call("LPOP", QUEUES[lane]) end
  set(head, WORK[lane], work.id)
  set(work, "state", "running")
end

-- The lane's work if there is any, else what waits and may begin.
local function next_work(head, ready)
  local lane = ARGV[1]
  if work_of(head, lane) ~= "" then return current_work(head, lane) end
  local id = ready and ready(head)
  if id then return load_work(lane, id), "" end
end

-- The token as a lane keeps it: with the time at which the session was opened. A begin that is sent again may find its
-- session purged and opened anew, with the same work ids; what is granted to it then must not pass for what it was
-- granted before, should a copy of the store bring that session back.
local function lane_token(head) return ARGV[2] .. "@" .. get(head, "created") end

local function grant(head, work, prefix, rules)
  local lane = ARGV[1]
  count_grant(work, prefix, rules.timeout_seconds or number(work, "timeout_seconds"))
  rules.take(head, work)
  save_work(head, work)
  set(head, lane .. ":token", lane_token(head))
  renew(head, lane)
  save_head(head)
  return granted(head, work, rules.large)
end

-- Grant the next work that nothing bars, by the *rules* of its lane: `ready(head)`, what waits and may begin (nil for a
-- rotation or digest, which is in its lane from its request on); `bar(work, prefix, head)`, what bars its grant, as
-- `obstacle`; `fail(head, work, code, why)`, how it ends if it cannot go on; `take(head, work)`, what a grant means,
-- after it was counted; `timeout_seconds`, unless the work has its own; `large`, a field that only the holder reads.
local function grant_next(rules)
  local lane, head = ARGV[1], load(HEAD)
  if not is_there(head) then return {"gone"} end
  local holder = get(head, lane .. ":token")
  if holder == lane_token(head) then return granted(head, (current_work(head, lane)), rules.large) end
  if holder ~= "" and number(head, lane .. ":lease") > NOW then return {"held"} end
  for _ = 1, ENDED_LIMIT do
    local work, prefix = next_work(head, rules.ready)
    if not work then break end
    local code, why = rules.bar(work, prefix, head)
    if not code then return grant(head, work, prefix, rules) end
    if code == "wait" then break end
    rules.fail(head, work, code, why)
  end
  save_head(head)
  return {"nothing"}
end
