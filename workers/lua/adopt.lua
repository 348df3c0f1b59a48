#!lua flags=allow-oom
-- Put a rotation's outcome in the place of exactly what it was computed from, or change nothing of the layout.
-- KEYS of the session   ARGV[1] the rotation lane, [2] token, [3] rotation id, [4] layout token, [5] first sequence
-- number that it saw, [6] entries that leave, [7] layout token that it saw, [8] last sequence number that it saw (0:
-- none), [9] commit token of that entry, [10] records (JSON lines), [11] their tokens, [12] archive chunk ("" without),
-- [13] line tokens, [14] figures (a JSON object), [15] room (JSON), [16] first sequence number of the chunk's postings
-- ("" without), [17] their level, [18] how many of the newest postings they take the place of, [19…] their parts
-- Reads the running turn's key, named from the tag.
-- Returns {"held", is_adopted, epoch, rotation to dispatch or "", "1" if a disposal is due}, or LOST.
-- Sent twice, the second finds its layout token in the head and answers alike.
local _, token, id, layout_token, first, dropped, seen_layout_token, tail, tail_token, records, record_tokens, chunk,
  line_tokens, figures_json, room, postings_first, postings_level, merged_count = unpack(ARGV, 1, 18)
first, dropped, tail, line_tokens = tonumber(first), tonumber(dropped), tonumber(tail), tonumber(line_tokens)
merged_count = tonumber(merged_count)

-- Outcomes kept for the next answer; older ones stay in the audit.
local OUTCOMES_LIMIT = 20

local function adopted(head, is_adopted)
  return {"held", is_adopted, get(head, "epoch"), requested_rotation(head, layout_token), get(head, "disposal_is_due")}
end

local function span_of(ref) return tonumber(string.match(ref, "^%d+")), tonumber(string.match(ref, "^%d+ (%d+)")) end

-- Whether the postings have what they take the place of in their span, and nothing that stays.
local function do_postings_fit()
  if postings_first == "" then return true end
  local newest = call("ZREVRANGE", POSTINGS_INDEX, 0, merged_count)
  if #newest < merged_count then return false end
  local oldest_merged, kept = newest[merged_count], newest[merged_count + 1]
  if oldest_merged and span_of(oldest_merged) < tonumber(postings_first) then return false end
  return not kept or select(2, span_of(kept)) < tonumber(postings_first)
end

local function is_what_was_seen(head)
  if number(head, "live_from") ~= first or get(head, "layout_token") ~= seen_layout_token then return false end
  if not do_postings_fit() then return false end
  if tail == 0 then return dropped == 0 end
  if tail < first or first + dropped - 1 > tail then return false end
  local element = call("LINDEX", LIVE, tail - first)
  return element and commit_token_of(element) == tail_token
end

-- The running turn's input, if it leaves now or left before, as an element with its sequence number before it.
local function carried_input(head)
  local running = get(head, "turn:work")
  if running == "" then return "" end
  local seq = tonumber(call("HGET", key_of("turn", running), "input_seq")) or 0
  if seq == 0 or seq >= first + dropped then return "" end
  if seq < first then return call("HGET", LAYOUT, "carried") or "" end
  return text(seq) .. "\n" .. call("LINDEX", LIVE, seq - first)
end

local function size_of_carried(carried) return tonumber(string.match(carried, "^%d+\n(%d+)\n")) or 0 end

-- In pieces: a call takes no more arguments.
local function in_pieces(command, key, arguments)
  for from = 1, #arguments, 1000 do call(command, key, unpack(arguments, from, math.min(from + 999, #arguments))) end
end

local function drop_postings(ref)
  local last_seq, part_count = string.match(ref, "^%d+ (%d+) %d+ (%d+)$")
  local fields = {}
  for part = 0, part_count - 1 do fields[part + 1] = last_seq .. ":" .. part end
  in_pieces("HDEL", POSTINGS, fields)
  call("ZREM", POSTINGS_INDEX, ref)
end

local function keep_postings(last)
  for _, ref in ipairs(merged_count > 0 and call("ZREVRANGE", POSTINGS_INDEX, 0, merged_count - 1) or {}) do
    drop_postings(ref)
  end
  local parts = {}
  for i = 19, #ARGV do
    parts[#parts + 1] = last .. ":" .. (i - 19)
    parts[#parts + 1] = ARGV[i]
  end
  in_pieces("HSET", POSTINGS, parts)
  call("ZADD", POSTINGS_INDEX, last, table.concat({postings_first, last, postings_level, #ARGV - 18}, " "))
end

local function drop_prefix(head)
  local tokens = 0
  for _, element in ipairs(call("LRANGE", LIVE, 0, dropped - 1)) do tokens = tokens + size_of(element) end
  call("LTRIM", LIVE, dropped, -1)
  add(head, "live_tokens", -tokens)
  local last, epoch = text(first + dropped - 1), text(number(head, "epoch") + 1)
  call("ZADD", ARCHIVE, last, text(first) .. "\n" .. last .. "\n" .. epoch .. "\n" .. chunk)
  add(head, "archived_bytes", #chunk)
  if postings_first ~= "" then keep_postings(last) end
end

-- The outcome as figures, for the next answer and for the audit.
local function report(head)
  local outcome = with_fields(figures_json, '"epoch":' .. get(head, "epoch") .. ',"rotation_id":'
    .. quoted(get(head, "rotation")) .. ',"reason":' .. quoted(get(head, "rotation:reason")))
  local outcomes = get(head, "outcomes") == "" and outcome or get(head, "outcomes") .. "\n" .. outcome
  local _, breaks = string.gsub(outcomes, "\n", "")
  if breaks >= OUTCOMES_LIMIT then outcomes = string.gsub(outcomes, "^[^\n]*\n", "", 1) end
  set(head, "outcomes", outcomes)
  note("rotated", outcome)
end

local function replace_layout(head)
  local carried = carried_input(head)
  if dropped > 0 then drop_prefix(head) end
  call("HSET", LAYOUT, "records", records, "carried", carried)
  set(head, "live_from", first + dropped)
  set(head, "record_tokens", record_tokens)
  set(head, "carried_tokens", size_of_carried(carried))
end

local function start_epoch(head)
  add(head, "epoch", 1)
  set(head, "layout_token", layout_token)
  set(head, "trim", "")
  set(head, "room", room)
  local name = get(head, "handle_name")
  if name ~= "" then dispose(head, name, get(head, "handle"), "", get(head, "turn:work")) end
  set(head, "handle_name", "")
  set(head, "handle", "")
end

local head = load(HEAD)
if not is_there(head) then return LOST end
if get(head, "layout_token") == layout_token then return adopted(head, 1) end
if not holds(head, "rotation", token, id) then return LOST end

local is_adopted = is_what_was_seen(head)
if is_adopted then
  local before = conversation_tokens(head)
  replace_layout(head)
  start_epoch(head)
  report(head)
  count("rotations", 1)
  if string.find(figures_json, '"window":', 1, true) then count("resets", 1) end
  if get(head, "journal:on_rotation") == "1" then capture_now(head) end
  if conversation_tokens(head) < before then set(head, "no_gain", 0) else count_no_gain(head) end
else
  note("rotation_stale", '{"rotation_id":' .. quoted(get(head, "rotation")) .. "}")
end
clear_rotation(head)
check_line(head, line_tokens, layout_token)
save_head(head)
return adopted(head, is_adopted and 1 or 0)
