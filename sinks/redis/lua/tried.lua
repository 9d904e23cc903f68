-- For every script that goes on with this text: what a command answers; nil where the name holds something of another
-- type, or where there is none to rename. Any other refusal, as of a right that the user lacks, ends the script: it says
-- nothing of what the name holds.
local function tried(...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or not found.err then
    return found
  end
  local why = string.gsub(found.err, '^ERR ', '')
  if string.find(why, '^WRONGTYPE') or string.find(why, '^no such key') then
    return nil
  end
  return redis.call(...) -- is refused once more, and so ends the script in Redis' own words
end

