#!lua flags=allow-oom
-- The agent's journal has a digest.
-- KEYS of the session   ARGV[1] digest id
-- Returns 1. Harmless twice.
local head = load(HEAD)
if not is_there(head) then return 1 end
call("ZREM", UNPUBLISHED, ARGV[1])
prune_unpublished(head)
save_head(head)
return 1
