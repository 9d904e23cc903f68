-- Apply writes to one generation, each only if its version is newer than the one stored: all in one step, so no reader
-- and no other writer sees a document without its version.
--
-- KEYS[1]  the follower's hash: `live` (the generation under readers' names), `switching`
-- KEYS[2]  the generation's hash: `documents` (how many are present), or `until:<time>` (how many are until then)
-- KEYS[3] and so on: a document's name and the name of its version; of a generation that takes part in a switch six for
--          each document; see move.lua
-- ARGV[1]  the generation
-- ARGV[2]  `live`, `shadow`, `leaving for 3` or `coming after 2`: where the caller believes the generation to be, and made
--          the names for. In a switch, what is written changes hands first, so that nothing new is where the switch
--          may have looked already.
-- ARGV[3]  how long to remember a deleted or expired key's version, in seconds
-- ARGV[4]  `json` or `hash`
-- ARGV[5]  how long a document lasts, in seconds, '0' for ever; ARGV[6] to how many seconds its end is rounded up
-- ARGV[7], ARGV[8] and so on: a version record and the document, empty for a delete. For `hash` the document is a JSON
--          array of fields and values: cjson reads texts exactly, numbers not.
--
-- A version record is 19 digits, `+` (present) or `-` (deleted), the generation, `@` and the second in which the document
-- expires, if it does, and a blank with what reading needs to know. Versions are compared as text: Lua's numbers are
-- doubles and lose the last digits.
--
-- Returns a letter per write: `w` written, `s` stale, `x` refused: the name is held by something that is not a document.

if redis.call('EXISTS', KEYS[2]) == 0 then
  return redis.error_reply('GENERATION missing')
end
local state = redis.call('HMGET', KEYS[1], 'live', 'switching')
local live, switching = state[1], state[2]
local place, per_document, mine = 'shadow', 2, 0
if live == ARGV[1] then
  place = 'live'
  if switching then
    place, per_document, mine = 'leaving for ' .. switching, 6, 2
  end
elseif switching == ARGV[1] then
  place, per_document = 'coming after ' .. (live or '0'), 6
end
if place ~= ARGV[2] then
  return redis.error_reply('GENERATION moved')
end

-- A full server lets a script go on that has deleted something. So ask for memory first, or deletes would open the door.
for a = 7, #ARGV, 2 do
  if string.sub(ARGV[a], 20, 20) == '+' then
    redis.call('HINCRBY', KEYS[2], 'documents', 0)
    break
  end
end

local hash, ttl = ARGV[4] == 'hash', tonumber(ARGV[5])
local size = hash and 'HLEN' or 'STRLEN'
local now, ends, forget, counter = 0, '', '', 'documents'
if ttl > 0 then
  local grain = tonumber(ARGV[6])
  now = tonumber(redis.call('TIME')[1])
  local last = math.ceil((now + 1 + ttl) / grain) * grain
  ends, forget = string.format('%d', last), string.format('%d', last + tonumber(ARGV[3]))
  counter = 'until:' .. ends
end
local generation_ends = 20 + string.len(ARGV[1])

local function put(name, document)
  if not hash then
    redis.call('SET', name, document)
  else
    local fields = cjson.decode(document)
    redis.call('DEL', name)
    for f = 1, #fields, 1000 do
      redis.call('HSET', name, unpack(fields, f, math.min(f + 999, #fields)))
    end
  end
end

local counted = {}
local function count(where, change)
  counted[where] = (counted[where] or 0) + change
end

-- Where a document that is present is counted; nil for one that was deleted, has expired, or never was.
local function counts(stored)
  if not stored or string.sub(stored, 20, 20) ~= '+' then
    return nil
  end
  local last = string.match(stored, '^%d+@(%d+)', 21)
  if not last then
    return 'documents'
  end
  return tonumber(last) > now and 'until:' .. last or nil
end

local result = {}
local item = 1
for k = 3, #KEYS, per_document do
  if per_document > 2 then
    move(k, switching)
  end
  local name, versioned = KEYS[k + mine], KEYS[k + mine + 1]
  local record, document = ARGV[5 + 2 * item], ARGV[6 + 2 * item]
  local stored = tried('GET', versioned)
  if not stored or not string.find(stored, '^%d', 19) then
    stored = false -- somebody else's: it says nothing of ours, and is replaced
  end
  local before = counts(stored)
  if stored and string.sub(stored, 1, 19) >= string.sub(record, 1, 19) then
    result[item] = 's'
  elseif not before and not tried(size, name) then
    result[item] = 'x'
  else
    if before then count(before, -1) end
    if string.sub(record, 20, 20) == '-' then
      redis.call('DEL', name)
      redis.call('SET', versioned, record, 'EX', ARGV[3])
    else
      put(name, document)
      if ttl > 0 then
        redis.call('EXPIREAT', name, ends)
        record = string.sub(record, 1, generation_ends) .. '@' .. ends .. string.sub(record, generation_ends + 1)
        redis.call('SET', versioned, record, 'EXAT', forget)
      else
        redis.call('SET', versioned, record)
      end
      count(counter, 1)
    end
    result[item] = 'w'
  end
  item = item + 1
end
for where, change in pairs(counted) do
  if change ~= 0 then
    redis.call('HINCRBY', KEYS[2], where, change)
  end
end
return table.concat(result)
