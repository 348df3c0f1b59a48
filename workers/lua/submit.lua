#!lua
-- Accept a turn, or say what is known of it.
-- KEYS of the session   ARGV[1] turn id, [2] digest of its input, [3] ids of the calls that it has results for
-- (JSON, in order; "" for a message), [4] input (JSON), [5] busy policy, [6] timeout seconds,
-- [7] seconds that its own open calls may wait, [8] "1" if its caller runs it, [9] "1" if it is to be streamed
-- Returns {"submitted", state, is_new, is_dispatched, queue length}, or {error code, reason}.
-- Sent twice, the second is told of the turn that the first accepted.
local id, digest, result_ids, busy = ARGV[1], ARGV[2], ARGV[3], ARGV[5]

local head = load(HEAD)
if not is_there(head) then return {"unknown_session"} end
local unfinished_count = count_unfinished(head, "turn")
local turn = load_turn(id)

if turn.exists then
  if get(turn, "digest") ~= digest then return {"turn_conflict"} end
  return {"submitted", get(turn, "state"), 0, ready_turn(head) == id and 1 or 0, unfinished_count}
end
if get(head, "state") == "closed" then return {"session_closed"} end
if result_ids ~= "" then
  if not calls_wait(head) then return {"invalid_input", "must be for calls that wait; none do"} end
  if get(head, "open_call_ids") ~= result_ids then
    return {"invalid_input", "must be for exactly the calls that wait: " .. get(head, "open_call_ids")}
  end
  if has_results_turn(head) then return {"invalid_input", "must not be given twice: a turn with them is queued"} end
end
if busy == "reject" and unfinished_count > 0 then
  return {"session_busy", "it has " .. unfinished_count .. " unfinished turns"}
end
if busy == "reject" and result_ids == "" and calls_wait(head) then
  return {"session_busy", "open calls wait for their results"}
end
if unfinished_count >= LIMITS.inbox_limit then
  return {"session_busy", unfinished_count .. " turns are unfinished, its limit"}
end
if (tonumber(call("HGET", COUNTERS, "unfinished")) or 0) >= LIMITS.queued_limit then
  return {"session_busy", text(LIMITS.queued_limit) .. " turns of its partition are unfinished, the limit"}
end

if busy == "interrupt" and result_ids == "" then
  for _, waiting in ipairs(unfinished_ids(head, "turn")) do
    cancel_turn(head, load_turn(waiting), "interrupted", "a newer message took its place")
  end
  abandon_calls(head, "interrupted")
end

for field, value in pairs({
  state = "queued", digest = digest, result_ids = result_ids, input = ARGV[4], timeout_seconds = ARGV[6],
  open_calls_seconds = ARGV[7], is_own = ARGV[8], is_streamed = ARGV[9], submitted = NOW,
  deadline = ARGV[8] == "1" and NOW + tonumber(ARGV[6]) or "",
}) do set(turn, field, value) end
save(turn)
remember(TURNS, id)
call(result_ids ~= "" and "LPUSH" or "RPUSH", INBOX, id)
count("unfinished", 1)
tell(id, "queued", "{}")
local is_dispatched = ready_turn(head) == id
make_due("turn", id, is_dispatched and NOW or NOW + LIMITS.sweep_first_seconds)
set(head, "updated", NOW)
save_head(head)
return {"submitted", "queued", 1, is_dispatched and 1 or 0, count_unfinished(head, "turn")}
