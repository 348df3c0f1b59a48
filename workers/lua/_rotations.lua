-- The rotation lane: request, end, and the line from which one is requested.

-- The rotations running without gain after which the line is left alone: as in sessionlib/stores/rules.
local NO_GAIN_LIMIT = 2

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

local function is_braked(room) return string.find(room, '"is_braked":true', 1, true) ~= nil end

-- Open sessions that are braked: one counter. The head keeps what was counted: one that was braked before there was a
-- counter enters it at its next commit, and none leaves it that is not in it.
local function count_braked(head)
  local now = get(head, "state") == "open" and is_braked(get(head, "room")) and "1" or ""
  if now == get(head, "braked_counted") then return end
  count("braked", now == "1" and 1 or -1)
  set(head, "braked_counted", now)
end

-- Request a rotation if the line is reached and no back-off holds.
local function check_line(head, line_tokens, by)
  count_fill(head, line_tokens)
  count_braked(head)
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

local function fail_rotation(head, _, code)
  note("rotation_failed", '{"id":' .. quoted(get(head, "rotation")) .. ',"code":' .. quoted(code) .. "}")
  count("rotations_failed:" .. code, 1)
  clear_rotation(head)
  if code == "no_gain" then count_no_gain(head) else back_off(head, code) end
end
