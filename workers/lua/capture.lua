#!lua flags=allow-oom
-- Request a digest of what is finished and not yet digested.
-- KEYS of the session   ARGV[1] reason
-- Reads the running turn's key, named from the tag.
-- Returns the id of the unfinished digest, requested now if there was none; "" if there is nothing to digest; false for
-- an unknown session. Sent twice, the second finds the digest that the first requested.
local reason = ARGV[1]

-- The newest entry before those of the running turn.
local function last_finished(head)
  local running = work_of(head, "turn")
  local first = running ~= "" and tonumber(call("HGET", key_of("turn", running), "first_seq"))
  return (first or number(head, "next_seq")) - 1
end

local function request_digest(head, first, last)
  add(head, "digest_counter", 1)
  local id = "d" .. get(head, "digest_counter")
  local job = create_job("digest", id, first, last, {reason = reason, timeout_seconds = LIMITS.digest_seconds})
  set(head, "digest:work", id)
  make_due("digest", id, NOW)
  keep(head)
  note("digest_requested",
    '{"digest_id":' .. quoted(id) .. ',"reason":' .. quoted(reason) .. "," .. span_json(job) .. "}")
end

local head = load(HEAD)
if not is_there(head) then return false end
if work_of(head, "digest") == "" then
  local first, last = number(head, "digested_seq") + 1, last_finished(head)
  not_due("capture", "")
  if first <= last then request_digest(head, first, last) else retire_if_idle(head) end
  save_head(head)
end
return work_of(head, "digest")
