#!lua flags=allow-oom
-- Record a round of the turn at work, and drop its steps; with an answer, end the turn.
-- KEYS of the session   ARGV[1] the turn lane, [2] token, [3] turn id, [4] commit token, [5] round, [6] epoch it saw,
-- [7] tokens of its entries, [8] index of the turn's input among them (-1: none), [9] "1" if they answer open calls,
-- [10] calibration, [11] line tokens, [12] trim (JSON), [13] room (JSON), [14] name of the handle (JSON, "" without),
-- [15] handle (JSON), [16] name of its parent (JSON, "" without), [17] what was learned of the window (JSON, "" for
-- nothing), [18] answer (JSON, "" without), [19] its open calls (JSON lines), [20] their ids (as in submit),
-- [21…] elements of the live list
-- Returns {"held", epoch, layout token, next turn, rotation to dispatch, "1" if a disposal is due}, or LOST.
-- The answer, its event and its hint go out in here: a caller never waits for a second message.
-- Sent twice, the second finds its commit token on the turn and answers alike.
local _, token, id, commit_token, round, epoch, tokens, input_index, closes_calls, calibration, line_tokens, trim, room,
  handle_name, handle, parent_name, window, answer, open_calls, open_call_ids = unpack(ARGV, 1, 20)
round, tokens = tonumber(round), tonumber(tokens)
input_index, line_tokens = tonumber(input_index), tonumber(line_tokens)

local function committed(head)
  return {
    "held", get(head, "epoch"), get(head, "layout_token"), ready_turn(head) or "",
    requested_rotation(head, commit_token), get(head, "disposal_is_due"),
  }
end

local function append_entries(head, turn)
  local first = number(head, "next_seq")
  local last = first + #ARGV - 21
  if round == 0 then
    set(turn, "first_seq", first)
    if input_index >= 0 then set(turn, "input_seq", first + input_index) end
  end
  for from = 21, #ARGV, 1000 do call("RPUSH", LIVE, unpack(ARGV, from, math.min(from + 999, #ARGV))) end
  set(head, "next_seq", last + 1)
  set(turn, "last_seq", last)
  add(head, "live_tokens", tokens)
  set(head, "tail_token", commit_token)
end

-- Go on with the handle. The chain of the one before ends, unless it is continued.
local function keep_handle(head)
  local held, held_handle = get(head, "handle_name"), get(head, "handle")
  set(head, "handle_name", handle_name)
  set(head, "handle", handle)
  if held ~= "" and held ~= handle_name and held ~= parent_name then dispose(head, held, held_handle, "", "") end
end

-- Whoever held the lane when the brake was lifted may still go by it.
local function keep_room(head)
  if get(head, "lifted_under") == token then room = unbraked(room) end
  if is_braked(room) and not is_braked(get(head, "room")) then
    note("braked", '{"turn_id":' .. quoted(id) .. "}")
    count("brakes", 1)
  end
  set(head, "room", room)
end

-- What was learned about an older epoch is not stored. A handle that nobody will use again is let go of.
local function learn(head, turn)
  if get(head, "epoch") == epoch then
    set(head, "trim", trim)
    keep_room(head)
    keep_handle(head)
  elseif handle_name ~= "" and not is_known_handle(head, handle_name) then
    dispose(head, handle_name, handle, parent_name, "")
  end
  let_go_of_untaken(head, turn)
end

local function leave_calls_open(head, turn)
  if open_calls == "" then return end
  set(head, "open_calls", open_calls)
  set(head, "open_call_ids", open_call_ids)
  set(head, "abandoned", "")
  make_due("open_calls", "", NOW + number(turn, "open_calls_seconds"))
end

local function end_answered(head, turn)
  local rotations = "[" .. string.gsub(get(head, "outcomes"), "\n", ",") .. "]"
  set(turn, "answer", answer)
  set(turn, "rotations", rotations)
  set(head, "outcomes", "")
  leave_calls_open(head, turn)
  capture_when_idle(head)
  local data = '{"answer":' .. answer .. ',"rotations":' .. rotations .. "}"
  end_turn(head, turn, {state = "answered", kind = "answered", data = data})
end

local head, turn = load(HEAD), load_turn(id)
if not is_there(head) then return LOST end
if get(turn, "commit_token") == commit_token then return committed(head) end
if not holds(head, "turn", token, id) or number(turn, "rounds") ~= round then return LOST end

append_entries(head, turn)
if closes_calls == "1" then
  not_due("open_calls", "")
  for _, field in ipairs({"open_calls", "open_call_ids", "abandoned"}) do set(head, field, "") end
end
if tonumber(calibration) > number(head, "calibration") then set(head, "calibration", calibration) end
if window ~= "" then set(head, "window", window) end
learn(head, turn)
add(turn, "step_base", call("LLEN", STEPS.turn))
call("DEL", STEPS.turn)
set(turn, "rounds", round + 1)
set(turn, "progress", "1")
set(turn, "commit_token", commit_token)
tell(id, "round", '{"round":' .. text(round) .. ',"tokens":' .. text(tokens) .. ',"epoch":' .. epoch .. ',"trim":'
  .. string.match(trim, '"value":(%b{})') .. "}")
if answer ~= "" then
  end_answered(head, turn)
else
  renew(head, "turn")
  save(turn)
end
check_line(head, line_tokens, commit_token)
save_head(head)
return committed(head)
