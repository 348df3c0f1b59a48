#!lua flags=allow-oom
-- Grant a lane's next work to a token, with all that is needed for it.
-- KEYS of the session   ARGV[1] lane, [2] token, and what the worker has: [3] layout token, [4] first and [5] next
-- sequence number of its live entries (0: none), [6] commit token of the last; [7] the turn that its caller runs itself
-- ("" for a worker)
-- Ends turns that cannot go on, and goes on to the next: keys of these turns are named from the tag.
-- Returns {"granted", now, snapshot, steps, turn (lane turn) or false}, or {refusal}.
-- Sent twice, the second finds its token in the head and gets the same grant; nothing is counted.
local lane, token = ARGV[1], ARGV[2]
-- Turns that one call may end on its way; the reaper comes again for the rest.
local ENDED_TURNS_LIMIT = 32

local function granted(head, turn)
  if turn then turn.fields.input = call("HGET", turn.key, "input") end
  local parts = snapshot(head, ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6])
  return {"granted", text(NOW), parts, call("LRANGE", STEPS[lane], 0, -1), turn and flattened(turn.fields) or false}
end

local function grant(head, turn)
  set(head, lane .. ":token", token)
  renew(head, lane)
  save_head(head)
  return granted(head, turn)
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
local function count_grant(work, prefix, first_deadline)
  if get(work, prefix .. "progress") == "1" then set(work, prefix .. "attempts", 0) end
  add(work, prefix .. "attempts", 1)
  set(work, prefix .. "progress", "")
  set(work, prefix .. "not_before", "")
  if number(work, prefix .. "deadline") == 0 then set(work, prefix .. "deadline", first_deadline) end
end

local function is_for_open_calls(head, turn)
  return calls_wait(head) and get(head, "open_call_ids") == get(turn, "result_ids")
end

-- What open calls and earlier attempts mean for the turn that is next: as `obstacle`.
local function turn_obstacle(head, turn)
  if get(turn, "state") == "queued" and get(turn, "result_ids") ~= "" and not is_for_open_calls(head, turn) then
    return "calls_closed", "the calls that its results are for were closed before it began"
  end
  return obstacle(turn, "")
end

-- A turn sizes its entries for the agent version of now: those before it may have been sized for another.
local function note_version(head)
  if get(head, "sized_by") == get(head, "agent_digest") then return end
  set(head, "sized_by", get(head, "agent_digest"))
  set(head, "sized_from_seq", get(head, "next_seq"))
end

local function take_turn(head, turn)
  note_version(head)
  if get(turn, "state") == "queued" then
    call("LPOP", INBOX)
    set(head, "turn:work", turn.id)
    set(turn, "state", "running")
  end
  count_grant(turn, "", NOW + number(turn, "timeout_seconds"))
  tell(turn.id, "started", '{"attempt":' .. get(turn, "attempts") .. "}")
  save(turn)
  return grant(head, turn)
end

-- A caller gets the turn that it runs itself and no other; a worker gets every other.
local function is_for_asker(turn)
  if get(turn, "is_own") == "1" or ARGV[7] ~= "" then return turn.id == ARGV[7] end
  return true
end

local function begin_turn(head)
  for _ = 1, ENDED_TURNS_LIMIT do
    local id = get(head, "turn:work")
    if id == "" then id = ready_turn(head) end
    if not id then break end
    local turn = load_turn(id)
    local code, why = turn_obstacle(head, turn)
    if code == "wait" or (not code and not is_for_asker(turn)) then break end
    if not code then return take_turn(head, turn) end
    fail_turn(head, turn, code, why)
  end
  save_head(head)
  return {"nothing"}
end

local function begin_rotation(head)
  if get(head, "rotation") == "" then return {"nothing"} end
  local code = obstacle(head, "rotation:")
  if not code then
    if number(head, "rotation:deadline") == 0 then set(head, "rotation:boundary", number(head, "next_seq") - 1) end
    count_grant(head, "rotation:", NOW + LIMITS.rotation_seconds)
    return grant(head)
  end
  if code ~= "wait" then
    fail_rotation(head, code)
    save_head(head)
  end
  return {"nothing"}
end

local head = load(HEAD)
if not is_there(head) then return {"gone"} end
local holder = get(head, lane .. ":token")
if holder == token then return granted(head, lane == "turn" and load_turn(get(head, "turn:work"))) end
if holder ~= "" and number(head, lane .. ":lease") > NOW then return {"held"} end
if lane == "turn" then return begin_turn(head) end
return begin_rotation(head)
