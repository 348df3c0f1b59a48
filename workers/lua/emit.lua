#!lua flags=allow-oom
-- Append an event to the granted turn's stream.
-- KEYS of the session   ARGV[1] the turn lane, [2] token, [3] turn id, [4] kind, [5] data (JSON)
-- Returns {"held"} or LOST. Sent twice, a delta stands there once: the second finds it the newest. Another event may
-- stand there twice: it is progress, and decides nothing.
local _, token, id, kind, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- Deltas lie beside the other events, so that they can go at once when their turn ends. The stream of the others
-- numbers both: what it gives a number to it forgets again.
local function tell_delta()
  local events = key_of("events", id)
  local number = call("XADD", events, "*", "kind", kind)
  call("XDEL", events, number)
  call("XADD", key_of("deltas", id), number, "kind", kind, "data", data)
  hint(id)
end

local function is_newest_delta()
  local newest = call("XREVRANGE", key_of("deltas", id), "+", "-", "COUNT", 1)[1]
  return newest and newest[2][4] == data
end

-- Of the head what is asked for here: whole it is most of the work, and this script runs more often than any other.
local function load_lane()
  local names, fields = {"state", "purged", "turn:token", "turn:work", "turn:lease"}, {}
  for i, value in ipairs(call("HMGET", HEAD, unpack(names))) do fields[names[i]] = value or nil end
  return {key = HEAD, exists = fields.state ~= nil, fields = fields, changed = {}}
end

local head = load_lane()
if not holds(head, "turn", token, id) then return LOST end
if kind ~= "delta" then
  tell(id, kind, data)
elseif not is_newest_delta() then
  tell_delta()
end
renew(head, "turn")
save_head(head)
return {"held"}
