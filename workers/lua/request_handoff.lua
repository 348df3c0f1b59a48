#!lua
-- Accept a handoff of all entries so far, or say what is known of it.
-- KEYS of the session   ARGV[1] job id, [2] digest of its request, [3] request (JSON), [4] timeout seconds
-- Returns {"job", fields of the job}, or {error code, reason}.
-- Sent twice, the second is told of the job that the first accepted.
local id, digest = ARGV[1], ARGV[2]

-- Unfinished handoffs of one session: as in sessionlib/stores/rules.
local HANDOFFS_LIMIT = 100

local head = load(HEAD)
if not is_there(head) then return {"unknown_session"} end
local job = load_work("handoff", id)
if job.exists then
  if get(job, "digest") ~= digest then return {"turn_conflict"} end
  return {"job", view_of_job("handoff", id)}
end
if number(head, "next_seq") == 1 then return {"invalid_input"} end
local waiting = count_unfinished(head, "handoff")
if waiting >= HANDOFFS_LIMIT then return {"session_busy", waiting .. " handoffs are unfinished, its limit"} end

create_job("handoff", id, 1, number(head, "next_seq") - 1, {
  digest = digest, request = ARGV[3], timeout_seconds = ARGV[4],
})
remember(JOBS, id)
call("RPUSH", HANDOFFS, id)
make_due("handoff", id, ready_handoff(head) == id and NOW or NOW + LIMITS.sweep_first_seconds)
keep(head)
set(head, "updated", NOW)
save_head(head)
return {"job", view_of_job("handoff", id)}
