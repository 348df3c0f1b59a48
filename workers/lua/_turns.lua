-- The turn lane: which turn may begin, open calls, handles to let go of, and how a turn ends.

local function load_turn(id) return load_work("turn", id) end

local function calls_wait(head) return get(head, "open_calls") ~= "" and get(head, "abandoned") == "" end

local function is_results(turn_id) return (call("HGET", key_of("turn", turn_id), "result_ids") or "") ~= "" end

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

-- Handles of provider sessions to let go of, oldest first: lines "<turn it waits for>\t<name>\t<handle>\t<parent>" in
-- the head; the parent is where the disposal stops ("" for the whole chain). Names and handle are JSON, so none holds a
-- tab or a line's end.
local DISPOSAL = "([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)\t?([^\t\n]*)"

local function disposals_of(head)
  local list = {}
  for waits_for, name, handle, parent in string.gmatch(get(head, "disposals"), DISPOSAL) do
    list[#list + 1] = {waits_for = waits_for, name = name, handle = handle, parent = parent}
  end
  return list
end

local function set_disposals(head, list)
  local lines, is_due = {}, false
  for i, disposal in ipairs(list) do
    lines[i] = table.concat({disposal.waits_for, disposal.name, disposal.handle, disposal.parent}, "\t")
    is_due = is_due or disposal.waits_for == ""
  end
  set(head, "disposals", table.concat(lines, "\n"))
  set(head, "disposal_is_due", is_due and "1" or "")
end

-- Whether the session goes on with a handle, or is to let go of it already.
local function is_known_handle(head, name)
  if get(head, "handle_name") == name then return true end
  for _, disposal in ipairs(disposals_of(head)) do
    if disposal.name == name then return true end
  end
  return false
end

local function dispose(head, name, handle, parent, waits_for)
  local list = disposals_of(head)
  list[#list + 1] = {waits_for = waits_for, name = name, handle = handle, parent = parent}
  set_disposals(head, list)
  if waits_for == "" then make_due("disposal", "", NOW) end
end

-- What a turn's steps brought and no round took over: lines "<name>\t<handle>\t<parent>" on the turn.
local UNTAKEN = "([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)"

-- A handle that a refused step of a turn brought: whoever was given it has gone on without, or is gone. It is due by
-- itself, unless the session has it, is to let go of it already, or the turn remembers it.
local function disown(head, turn_id, line)
  local name, handle, parent = string.match(line, UNTAKEN)
  if not name or is_known_handle(head, name) then return end
  for remembered in string.gmatch(call("HGET", key_of("turn", turn_id), "handles") or "", UNTAKEN) do
    if remembered == name then return end
  end
  make_due("orphan", parent .. "\t" .. handle, NOW)
end

-- Let go of it.
local function let_go_of_untaken(head, turn)
  for name, handle, parent in string.gmatch(get(turn, "handles"), UNTAKEN) do
    if not is_known_handle(head, name) then dispose(head, name, handle, parent, "") end
  end
  set(turn, "handles", "")
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

-- End a turn by whatever: *ending* has state, kind and data of the last event, and code and error if it failed.
local function end_turn(head, turn, ending)
  if get(turn, "state") == "running" then
    leave_lane(head, "turn")
  else
    call("LREM", INBOX, 1, turn.id)
  end
  set(turn, "state", ending.state)
  set(turn, "finished", NOW)
  set(turn, "error_code", ending.code or "")
  set(turn, "error", ending.error or "")
  let_go_of_untaken(head, turn)
  save(turn)
  call("HDEL", turn.key, "input") -- it may be large, and stands in history if it came that far
  not_due("turn", turn.id)
  tell(turn.id, ending.kind, ending.data)
  call("UNLINK", key_of("deltas", turn.id))
  hint_end(turn.id)
  expire(TURNS, turn.id, {turn.key, key_of("events", turn.id)})
  count("unfinished", -1)
  count(ending.state, 1)
  if get(turn, "result_ids") ~= "" and number(turn, "rounds") == 0 then abandon_calls(head, ending.code) end
  free_disposals(head, turn.id)
  offer_next(head)
  if ending.state == "failed" then
    note("turn_failed", '{"turn_id":' .. quoted(turn.id) .. ',"code":' .. quoted(ending.code) .. "}")
  end
  rest(head)
end

local function fail_turn(head, turn, code, why)
  local data = '{"code":' .. quoted(code) .. ',"reason":' .. quoted(why) .. "}"
  end_turn(head, turn, {state = "failed", code = code, error = why, kind = "failed", data = data})
end

local function cancel_turn(head, turn, code, why)
  local data = '{"code":' .. quoted(code) .. "}"
  end_turn(head, turn, {state = "cancelled", code = code, error = why, kind = "cancelled", data = data})
end
