#!lua flags=allow-oom
-- Grant the next turn, or the rotation, to a token, with all that is needed for it.
-- KEYS of the session   ARGV[1] lane, [2] token, and what the worker has: [3] layout token, [4] first and [5] next
-- sequence number of its live entries (0: none), [6] commit token of the last; [7] the turn that its caller runs itself
-- ("" for a worker)
-- Ends turns that cannot go on, and goes on to the next: keys of these turns are named from the tag.
-- Returns {"granted", now, snapshot, steps, turn or false}, or {refusal}.
-- Sent twice, the second finds its token in the head and gets the same grant; nothing is counted.

local function is_for_open_calls(head, turn)
  return calls_wait(head) and get(head, "open_call_ids") == get(turn, "result_ids")
end

-- A turn waits with results for calls that were closed meanwhile.
local function is_too_late(head, turn)
  return get(turn, "state") == "queued" and get(turn, "result_ids") ~= "" and not is_for_open_calls(head, turn)
end

-- A caller gets the turn that it runs itself and no other; a worker gets every other.
local function is_for_asker(turn)
  if get(turn, "is_own") == "1" or ARGV[7] ~= "" then return turn.id == ARGV[7] end
  return true
end

local function bar_turn(turn, prefix, head)
  if is_too_late(head, turn) then
    return "calls_closed", "the calls that its results are for were closed before it began"
  end
  local code, why = obstacle(turn, prefix)
  if not code and not is_for_asker(turn) then return "wait" end
  return code, why
end

-- A turn sizes its entries for the agent version of now: those before it may have been sized for another.
local function note_version(head)
  if get(head, "sized_by") == get(head, "agent_digest") then return end
  set(head, "sized_by", get(head, "agent_digest"))
  set(head, "sized_from_seq", get(head, "next_seq"))
end

local function take_turn(head, turn)
  note_version(head)
  start(head, turn)
  tell(turn.id, "started", '{"attempt":' .. get(turn, "attempts") .. "}")
end

-- What lies before the first claim is what the rotation is about.
local function take_rotation(head)
  if get(head, "rotation:boundary") == "" then set(head, "rotation:boundary", number(head, "next_seq") - 1) end
end

return grant_next(({
  turn = {ready = ready_turn, bar = bar_turn, fail = fail_turn, take = take_turn, large = "input"},
  rotation = {bar = obstacle, fail = fail_rotation, take = take_rotation, timeout_seconds = LIMITS.rotation_seconds},
})[ARGV[1]])
