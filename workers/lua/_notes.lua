-- The session's notes: one hash, of each note its text, and the key of the write that made it so.

local TEXT, KEY = "text:", "key:"

-- Names and sizes in bytes: name, size, name, size.
local function note_sizes()
  local sizes = {}
  for _, field in ipairs(call("HKEYS", NOTES)) do
    if string.sub(field, 1, #TEXT) == TEXT then
      sizes[#sizes + 1] = string.sub(field, #TEXT + 1)
      sizes[#sizes + 1] = call("HSTRLEN", NOTES, field)
    end
  end
  return sizes
end
