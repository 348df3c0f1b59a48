-- The handoff and the digest lane: their work is a job, the summary of a span of entries. And what digests leave: the
-- journal of the session and that of the agent.

local function ready_handoff(head)
  return work_of(head, "handoff") == "" and call("LINDEX", HANDOFFS, 0) or nil
end

-- A job that waits for its first grant, about a span of entries.
local function create_job(lane, id, first, last, fields)
  local job = {id = id, key = key_of(lane, id), fields = {}, changed = {}}
  for field, value in pairs(fields) do set(job, field, value) end
  set(job, "state", "queued")
  set(job, "first_seq", first)
  set(job, "last_seq", last)
  set(job, "submitted", NOW)
  save(job)
  return job
end

-- What is told of a job: field, value, field, value; nothing of one that is not there.
local function view_of_job(lane, id)
  return pick(key_of(lane, id), {
    "state", "first_seq", "last_seq", "result", "error_code", "error", "attempts", "submitted", "finished",
  })
end

-- A job's span, for the audit.
local function span_json(job, last)
  return '"first_seq":' .. get(job, "first_seq") .. ',"last_seq":' .. (last or get(job, "last_seq"))
end

-- End the handoff at work; the next one may begin.
local function end_handoff(head, job, state)
  leave_lane(head, "handoff")
  set(job, "state", state)
  set(job, "finished", NOW)
  save(job)
  not_due("handoff", job.id)
  expire(JOBS, job.id, {job.key})
  local following = ready_handoff(head)
  if following then make_due("handoff", following, NOW) end
  retire_if_idle(head)
end

local function fail_handoff(head, job, code, why)
  set(job, "error_code", code)
  set(job, "error", why)
  local ending = ',"code":' .. quoted(code) .. ',"reason":' .. quoted(why) .. "}"
  note("handoff_failed", '{"job_id":' .. quoted(job.id) .. ending)
  end_handoff(head, job, "failed")
end

-- The digest at work is finished: nothing is left of its job.
local function drop_digest(head, job)
  leave_lane(head, "digest")
  not_due("digest", job.id)
  call("DEL", job.key)
end

-- Capture the stretch again, or leave it out.
local function fail_digest(head, job, code, why)
  local ending = ',"code":' .. quoted(code) .. ',"reason":' .. quoted(why) .. "}"
  note("digest_failed", '{"digest_id":' .. quoted(job.id) .. ending)
  drop_digest(head, job)
  add(head, "digest_failures", 1)
  if number(head, "digest_failures") < LIMITS.digest_tries then
    make_capture_due(head, NOW + LIMITS.digest_retry_seconds)
    return
  end
  set(head, "digested_seq", get(job, "last_seq"))
  set(head, "digest_failures", 0)
  note("digest_dropped", '{"digest_id":' .. quoted(job.id) .. "," .. span_json(job) .. "}")
  retire_if_idle(head)
end

-- How a lane's work ends that cannot go on.
local FAIL = {turn = fail_turn, rotation = fail_rotation, handoff = fail_handoff, digest = fail_digest}

-- Digests: *order* (sorted set) has their names by time, *texts* (hash) what is known of each -------------------------

-- What was accepted then, or before, is too old.
local TOO_OLD = text(NOW - LIMITS.journal_seconds)

local function drop_digests(order, texts, names)
  for _, name in ipairs(names) do
    call("ZREM", order, name)
    call("HDEL", texts, name)
  end
end

-- Let go of what is too old or too much.
local function prune_digests(order, texts)
  drop_digests(order, texts, call("ZRANGEBYSCORE", order, "-inf", TOO_OLD))
  drop_digests(order, texts, call("ZRANGE", order, 0, -LIMITS.journal_limit - 1))
end

local function put_digest(order, texts, name, at, digest)
  call("ZADD", order, at, name)
  call("HSET", texts, name, digest)
  prune_digests(order, texts)
end

-- The newest *limit* digests, newest first: name, digest, name, digest.
local function newest_digests(order, texts, limit)
  local found = {}
  for _, name in ipairs(call("ZREVRANGEBYSCORE", order, "+inf", "(" .. TOO_OLD, "LIMIT", 0, limit)) do
    found[#found + 1] = name
    found[#found + 1] = call("HGET", texts, name)
  end
  return found
end

-- What left the session's journal, or is too old for it, is not published any more; with nothing to publish, nothing is
-- due.
local function prune_unpublished(head)
  prune_digests(JOURNAL, DIGESTS)
  local oldest = call("ZRANGE", JOURNAL, 0, 0, "WITHSCORES")[2]
  call("ZREMRANGEBYSCORE", UNPUBLISHED, "-inf", oldest and "(" .. oldest or "+inf")
  if call("ZCARD", UNPUBLISHED) > 0 then return end
  not_due("publication", "")
  retire_if_idle(head)
end
