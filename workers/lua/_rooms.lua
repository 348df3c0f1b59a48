-- Where a session under `work_room` stands: one text in the head, as Python encodes a Room. Lua knows the brake in it
-- (`is_braked`, which `_rotations` has for its count).

-- The same with the brake lifted.
local function unbraked(room)
  return (string.gsub(string.gsub(room, '"is_braked":true', '"is_braked":false'), '"breathless_count":%d+',
    '"breathless_count":0'))
end
