#!lua flags=allow-oom
-- Delete a session bit by bit. The first call leaves a tombstone, which refuses everything; the last removes it.
-- KEYS of the session   ARGV[1] how many keys to delete at most
-- Deletes the keys of its turns, named from the tag.
-- Returns 1 when nothing is left, else 0.
local left = tonumber(ARGV[1])

local function bury(head)
  for _, id in ipairs(unfinished_turns(head)) do
    count("unfinished", -1)
    not_due("turn", id)
    hint(id)
  end
  if get(head, "rotation") ~= "" then not_due("rotation", get(head, "rotation")) end
  not_due("open_calls", "")
  not_due("disposal", "")
  if get(head, "fill_band") ~= "" then count("fill:" .. get(head, "fill_band"), -1) end
  count("sessions", -1)
  call("ZREM", INDEX, SESSION)
  set(head, "purged", "1")
  make_due("retention", "", NOW)
  save_head(head)
end

local function delete(key)
  if left > 0 then left = left - call("UNLINK", key) end
end

local head = load(HEAD)
if not head.exists then return 1 end
if get(head, "purged") == "" then bury(head) end
while left > 0 do
  local id = call("ZRANGE", TURNS, 0, 0)[1]
  if not id then break end
  local before = left
  delete(events_key(id))
  if left > 0 then
    delete(turn_key(id))
    call("ZREM", TURNS, id)
    left = math.min(left, before - 1) -- a turn whose keys expired counts too: the loop stays bounded
  end
end
for _, key in ipairs({LAYOUT, LIVE, INBOX, STEPS.turn, STEPS.rotation, ARCHIVE, AUDIT}) do delete(key) end
if left == 0 then return 0 end
not_due("retention", "")
call("DEL", HEAD)
return 1
