-- Apply writes to one generation, each only if its version is newer than the one stored: all in one step, so no reader
-- and no other writer sees a document without its version.
--
-- KEYS[1]  the follower's hash: `live` (the generation under readers' names), `switching`
-- KEYS[2]  the generation's hash: `documents` (how many are present)
-- KEYS[3], KEYS[4] and so on: a document's name and the name of its version
-- ARGV[1]  the generation
-- ARGV[2]  `live` or `shadow`: where the caller believes the generation to be, and made the names for
-- ARGV[3]  how long to remember a deleted key's version, in seconds
-- ARGV[4], ARGV[5] and so on: a version record and the document, empty for a delete
--
-- A version record is 19 digits, `+` (present) or `-` (deleted), the generation and, for a key of several columns, a blank
-- and the key's text. Versions are compared as text: Lua's numbers are doubles and lose the last digits.
--
-- Returns a letter per write: `w` written, `s` stale, `x` refused: the name is held by something that is not a document.

if redis.call('EXISTS', KEYS[2]) == 0 then
  return redis.error_reply('GENERATION missing')
end
local state = redis.call('HMGET', KEYS[1], 'live', 'switching')
if state[2] then
  return redis.error_reply('GENERATION switching')
end
if (state[1] == ARGV[1]) ~= (ARGV[2] == 'live') then
  return redis.error_reply('GENERATION moved')
end

local result = {}
local documents = 0
local item = 1
for k = 3, #KEYS, 2 do
  local name, versioned = KEYS[k], KEYS[k + 1]
  local record, document = ARGV[k + 1], ARGV[k + 2]
  local stored = redis.call('GET', versioned)
  local present = stored and string.sub(stored, 20, 20) == '+'
  if stored and string.sub(stored, 1, 19) >= string.sub(record, 1, 19) then
    result[item] = 's'
  elseif not present and type(redis.pcall('STRLEN', name)) == 'table' then
    result[item] = 'x'
  elseif string.sub(record, 20, 20) == '-' then
    redis.call('DEL', name)
    redis.call('SET', versioned, record, 'EX', ARGV[3])
    if present then documents = documents - 1 end
    result[item] = 'w'
  else
    redis.call('SET', name, document)
    redis.call('SET', versioned, record)
    if not present then documents = documents + 1 end
    result[item] = 'w'
  end
  item = item + 1
end
if documents ~= 0 then
  redis.call('HINCRBY', KEYS[2], 'documents', documents)
end
return table.concat(result)
