#!lua flags=allow-oom
-- Record a job's result, and end it.
-- KEYS of the session   ARGV[1] lane, [2] token, [3] job id, [4] settle token, [5] result, [6] last sequence number
-- that it covers (a digest), [7] "1" if the digest is empty, [8] figures (a JSON object)
-- Returns {"held", "", handoff to dispatch or "", "1" if a capture is overdue, "1" if there is something to publish},
-- or LOST, or {"held", what the last sequence number must be, "", "", ""}.
-- Sent twice, the second finds its settle token on the job, or in the head for a digest, and answers alike.
local lane, token, id, settle_token, result, last, is_empty, figures = unpack(ARGV)

local function settled(head)
  if lane == "handoff" then return {"held", "", ready_handoff(head) or "", "", ""} end
  return {"held", "", "", is_overdue("capture", "") and "1" or "", due_at("publication", "") and "1" or ""}
end

local function enter_journal(head, job)
  local digest = {get(job, "first_seq"), last, text(NOW), figures, result}
  put_digest(JOURNAL, DIGESTS, id, text(NOW), table.concat(digest, "\n"))
  if is_empty ~= "1" then
    call("ZADD", UNPUBLISHED, text(NOW), id)
    make_due("publication", "", NOW)
  end
  prune_unpublished(head)
end

local function settle_handoff(head, job)
  set(job, "settle_token", settle_token)
  set(job, "result", result)
  note("handed_off", with_fields(figures, '"job_id":' .. quoted(id) .. "," .. span_json(job)))
  end_handoff(head, job, "done")
end

local function settle_digest(head, job)
  local is_whole = tonumber(last) == number(job, "last_seq")
  drop_digest(head, job)
  set(head, "digested_seq", last)
  set(head, "digest_failures", 0)
  set(head, "digest_settled", settle_token)
  enter_journal(head, job)
  note("digested", with_fields(figures, '"digest_id":' .. quoted(id) .. "," .. span_json(job, last) .. ',"is_empty":'
    .. (is_empty == "1" and "true" or "false")))
  if not is_whole or is_overdue("capture", "") then make_capture_due(head, NOW) end
  retire_if_idle(head)
end

local SETTLE = {handoff = settle_handoff, digest = settle_digest}

local head = load(HEAD)
if not is_there(head) then return LOST end
local job = load_work(lane, id)
local settled_by = lane == "handoff" and get(job, "settle_token") or get(head, "digest_settled")
if settled_by == settle_token then return settled(head) end
if not holds(head, lane, token, id) then return LOST end
if lane == "digest" and (tonumber(last) < number(job, "first_seq") or tonumber(last) > number(job, "last_seq")) then
  return {"held", "must be within " .. get(job, "first_seq") .. " to " .. get(job, "last_seq"), "", "", ""}
end
SETTLE[lane](head, job)
save_head(head)
return settled(head)
