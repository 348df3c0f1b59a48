#!lua flags=allow-oom
-- Write a note, or lengthen it.
-- KEYS of the session   ARGV[1] the turn lane, [2] token, [3] turn id, [4] name, [5] text, [6] key of this write,
-- [7] "1" to lengthen, [8] "1" if it is the thread hint
-- Returns {"held", its size in bytes, ""}, {"held", the size it would have, name of the limit that bars it}, or LOST.
-- Sent twice, the second finds its key at the note, and changes nothing.
local _, token, id, name, written, key, is_longer, is_hint = unpack(ARGV)
local text_field, key_field = TEXT .. name, KEY .. name

-- The name of the limit that a note of that size would break; "" for none.
local function exceeded_limit(size, is_new)
  if is_hint == "1" and size > LIMITS.hint_bytes then return "hint_bytes" end
  if size > LIMITS.note_bytes then return "note_bytes" end
  local sizes, total = note_sizes(), size
  if is_new and #sizes / 2 >= LIMITS.notes_limit then return "notes_limit" end
  for i = 1, #sizes, 2 do
    if sizes[i] ~= name then total = total + sizes[i + 1] end
  end
  return total > LIMITS.notes_bytes and "notes_bytes" or ""
end

local head = load(HEAD)
if not holds(head, "turn", token, id) then return LOST end
local before, known_key = unpack(call("HMGET", NOTES, text_field, key_field))
if known_key == key then return {"held", #before, ""} end
if before and is_longer == "1" then written = before .. written end
local limit = exceeded_limit(#written, not before)
if limit == "" then
  call("HSET", NOTES, text_field, written, key_field, key)
  renew(head, "turn")
  save_head(head)
end
return {"held", #written, limit}
