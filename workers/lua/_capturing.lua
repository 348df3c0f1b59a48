-- When a stretch is captured, and how long a closed session is kept for what is still to be done with it.

-- A closed session has something to do again: its retention time begins anew when that is done.
local function keep(head)
  if get(head, "state") == "closed" then not_due("retention", "") end
end

local function make_capture_due(head, at)
  make_due("capture", "", at)
  keep(head)
end

-- A stretch is finished: it is due for a digest, if there is anything that no digest covers.
local function capture_now(head)
  if number(head, "next_seq") - 1 > number(head, "digested_seq") then make_capture_due(head, NOW) end
end

-- The stretch will be finished if nobody speaks for a while. A capture that is overdue stays so.
local function capture_when_idle(head)
  if get(head, "journal:idle_seconds") == "" or is_overdue("capture", "") then return end
  make_capture_due(head, NOW + number(head, "journal:idle_seconds"))
end

local function has_unfinished_turns(head) return work_of(head, "turn") ~= "" or call("LLEN", INBOX) > 0 end

-- What a closed session is kept for: unfinished turns and jobs, and what is still to be digested or published.
local function is_needed(head)
  if has_unfinished_turns(head) or work_of(head, "handoff") ~= "" or work_of(head, "digest") ~= "" then return true end
  return call("LLEN", HANDOFFS) > 0 or due_at("capture", "") or due_at("publication", "")
end

-- A closed session with nothing to do is kept for its retention time from now on, if it has one.
local function retire_if_idle(head)
  if get(head, "state") ~= "closed" or get(head, "retention_seconds") == "" then return end
  if is_needed(head) or due_at("retention", "") then return end
  make_due("retention", "", NOW + number(head, "retention_seconds"))
end

-- The last stretch of a closed session is finished with its last turn.
local function rest(head)
  if get(head, "state") ~= "closed" or has_unfinished_turns(head) then return end
  if get(head, "journal:on_close") == "1" then capture_now(head) end
  retire_if_idle(head)
end
