#!lua flags=allow-oom
-- The provider let go of a handle.
-- KEYS of the session   ARGV[1] name of the handle (JSON)
-- Returns 1. Harmless twice.
local head, left = load(HEAD), {}
if not is_there(head) then return 1 end
for _, disposal in ipairs(disposals_of(head)) do
  if disposal.name ~= ARGV[1] then left[#left + 1] = disposal end
end
set_disposals(head, left)
if get(head, "disposal_is_due") == "" then not_due("disposal", "") end
save_head(head)
return 1
