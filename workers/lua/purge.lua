#!lua flags=allow-oom
-- Delete a session bit by bit. The first call leaves a tombstone, which refuses everything; the last removes it.
-- KEYS of the session   ARGV[1] how many keys to delete at most
-- Deletes the keys of its turns and jobs, named from the tag. What is published stays, and so does the due member of
-- each provider session that it held ("orphan", its id "<parent at which the disposal stops>\t<handle>").
-- Returns 1 when nothing is left, else 0.
local left = tonumber(ARGV[1])

-- What the session holds, or its running turn remembers, is due without it, each handle once.
local function leave_orphans(head)
  local names = {}
  local function leave(name, handle, parent)
    if name == "" or names[name] then return end
    names[name] = true
    make_due("orphan", parent .. "\t" .. handle, NOW)
  end
  leave(get(head, "handle_name"), get(head, "handle"), "")
  for _, disposal in ipairs(disposals_of(head)) do leave(disposal.name, disposal.handle, disposal.parent) end
  local untaken = call("HGET", key_of("turn", work_of(head, "turn")), "handles") or ""
  for name, handle, parent in string.gmatch(untaken, UNTAKEN) do leave(name, handle, parent) end
end

local function bury(head)
  for _, id in ipairs(unfinished_ids(head, "turn")) do
    count("unfinished", -1)
    hint(id)
  end
  hint("")
  for _, lane in ipairs(LANES) do
    for _, id in ipairs(unfinished_ids(head, lane)) do not_due(lane, id) end
  end
  for _, kind in ipairs({"open_calls", "disposal", "capture", "publication"}) do not_due(kind, "") end
  leave_orphans(head)
  if get(head, "fill_band") ~= "" then count("fill:" .. get(head, "fill_band"), -1) end
  if get(head, "braked_counted") ~= "" then count("braked", -1) end
  count("sessions", -1)
  call("ZREM", INDEX, SESSION)
  set(head, "purged", "1")
  make_due("retention", "", NOW)
  save_head(head)
end

local function delete(key)
  if left > 0 then left = left - call("UNLINK", key) end
end

-- Delete the keys of what *index* names, of each the kinds in this order.
local function delete_indexed(index, kinds)
  while left > 0 do
    local id = call("ZRANGE", index, 0, 0)[1]
    if not id then return end
    local before, is_whole = left, true
    for _, kind in ipairs(kinds) do
      is_whole = left > 0
      delete(key_of(kind, id))
    end
    if is_whole then
      call("ZREM", index, id)
      left = math.min(left, before - 1) -- what expired counts too: the loop stays bounded
    end
  end
end

local head = load(HEAD)
if not head.exists then return 1 end
if get(head, "purged") == "" then bury(head) end
delete_indexed(TURNS, {"events", "deltas", "turn"})
delete_indexed(JOBS, {"handoff"})
delete(key_of("digest", work_of(head, "digest")))
for _, lane in ipairs(LANES) do delete(STEPS[lane]) end
for _, key in ipairs({
  LAYOUT, LIVE, INBOX, HANDOFFS, ARCHIVE, AUDIT, JOURNAL, DIGESTS, UNPUBLISHED, POSTINGS, POSTINGS_INDEX, NOTES,
}) do delete(key) end
if left == 0 then return 0 end
not_due("retention", "")
call("DEL", HEAD)
return 1
