#!lua
-- Create a session, or confirm one that is there.
-- KEYS of the session   ARGV[1] agent name, [2] its digest, [3] "1" to pin it, [4] its description (JSON),
-- [5] digest of the history ("" without), [6] its tokens, [7] line tokens, [8] retention seconds ("" keeps it), [9] and
-- [10] "1" to capture when it is closed and at rotations, [11] idle seconds before a capture ("" without), [12…]
-- elements of the live list
-- Returns {"opened", is_new, agent name, digest, pinned, rotation to dispatch or ""}, or {error code}.
-- Sent twice, the second confirms what the first created.
local name, digest, pinned, description = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local history_digest, line_tokens = ARGV[5], tonumber(ARGV[7])

-- When stretches of the session are digested: the agent version's rules apply with it.
local function set_journal_rules(head)
  set(head, "journal:on_close", ARGV[9])
  set(head, "journal:on_rotation", ARGV[10])
  set(head, "journal:idle_seconds", ARGV[11])
end

local function create()
  local head = load(HEAD)
  for field, value in pairs({
    state = "open", agent_name = name, agent_digest = digest, pinned = pinned, retention_seconds = ARGV[8],
    sized_by = digest, sized_from_seq = 1,
    next_seq = 1, live_from = 1, live_tokens = 0, record_tokens = 0, carried_tokens = 0, epoch = 0, calibration = "1.0",
    created = NOW,
  }) do set(head, field, value) end
  set_journal_rules(head)
  call("HSET", AGENTS, digest, description)
  call("ZADD", INDEX, 0, SESSION)
  count("sessions", 1)
  note("opened", '{"agent":' .. quoted(name) .. ',"digest":' .. quoted(digest) .. "}")
  return head
end

-- A new version of the agent applies from the next turn, unless the session is pinned to the old.
local function follow(head)
  if get(head, "pinned") == "1" then return end
  if pinned == "1" then
    set(head, "pinned", "1")
  elseif get(head, "agent_name") ~= name or get(head, "agent_digest") ~= digest then
    set(head, "agent_name", name)
    set(head, "agent_digest", digest)
    set_journal_rules(head)
    call("HSET", AGENTS, digest, description)
    note("agent_version", '{"agent":' .. quoted(name) .. ',"digest":' .. quoted(digest) .. "}")
  end
end

local function take_over(head)
  for from = 12, #ARGV, 1000 do call("RPUSH", LIVE, unpack(ARGV, from, math.min(from + 999, #ARGV))) end
  set(head, "history_digest", history_digest)
  set(head, "next_seq", #ARGV - 10)
  set(head, "live_tokens", ARGV[6])
  set(head, "tail_token", "history:" .. history_digest)
  count_fill(head, line_tokens)
  if number(head, "live_tokens") >= line_tokens then request_rotation(head, "history", "history:" .. history_digest) end
end

local head = load(HEAD)
if get(head, "purged") ~= "" then return {"session_busy", "it is being purged"} end
if get(head, "state") == "closed" then return {"session_closed"} end
local known = get(head, "history_digest")
local is_new_history = history_digest ~= "" and history_digest ~= known
if is_new_history and (known ~= "" or number(head, "next_seq") > 1) then return {"invalid_input"} end

local is_new = not head.exists
if is_new then head = create() else follow(head) end
if is_new_history then take_over(head) end
save_head(head)
return {
  "opened", is_new and 1 or 0, get(head, "agent_name"), get(head, "agent_digest"), get(head, "pinned"),
  requested_rotation(head, "history:" .. history_digest),
}
