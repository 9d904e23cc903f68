-- Change what generations a follower has, and which one is under the readers' names: each change in one step.
--
-- KEYS[1]  the follower's hash: `live` (the generation under the readers' names), `switching` (the one that comes),
--          `promoted` (the one that readers were given), and for each generation n `names:n` (the start of its names)
--          and, while it is being dropped, `dropping:n`
-- KEYS[2]  the generation's hash; KEYS[3] says that it was dropped; KEYS[4] whose names start how
-- ARGV[1]  what to do; ARGV[2] the generation; for `create` ARGV[3] the start of its names, for `drop` ARGV[3] how long
--          to remember that it was dropped, in seconds, and ARGV[4] `live` where it may be under the readers' names
--
-- Each begins by taking something away, if there is anything: a full server lets a script go on that has done so, and
-- on a full server, too, generations must be promoted and dropped.

local follower, generation = KEYS[1], ARGV[2]
local state = redis.call('HMGET', follower, 'live', 'switching', 'promoted')
local live, switching = state[1], state[2]
local dropping, names = 'dropping:' .. generation, 'names:' .. generation
local steps = {}

-- The first one is written straight under the readers' names; one that is there stays where it is.
function steps.create()
  redis.call('DEL', KEYS[3])
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('HSETNX', follower, 'live', generation)
    redis.call('HSET', KEYS[2], 'documents', 0)
  end
  redis.call('HSET', follower, names, ARGV[3])
  return 1
end

-- Returns the generation that leaves the readers' names, '0' for none.
function steps.begin()
  if redis.call('EXISTS', KEYS[2]) == 0 then
    return redis.error_reply('GENERATION missing')
  elseif switching and switching ~= generation then
    return redis.error_reply('GENERATION switching')
  end
  redis.call('HDEL', follower, 'switching')
  if live == generation then
    redis.call('HSET', follower, 'promoted', generation)
  else
    redis.call('HSET', follower, 'switching', generation)
  end
  return live or '0'
end

function steps.finish()
  if switching == generation then
    redis.call('HDEL', follower, 'switching')
    redis.call('HSET', follower, 'live', generation, 'promoted', generation)
    return 1
  end
  return 0
end

-- Holds writers off. Returns where its documents are: `live` or `shadow`.
function steps.drop()
  if switching then
    return redis.error_reply('GENERATION switching')
  elseif live == generation and ARGV[4] ~= 'live' then
    return redis.error_reply('GENERATION live')
  end
  local where = live == generation and 'live' or 'shadow'
  redis.call('DEL', KEYS[2])
  redis.call('HSET', follower, dropping, where)
  redis.call('SET', KEYS[3], '', 'EX', ARGV[3])
  return where
end

-- All that it had is gone. Its names may be another follower's, unless a generation that is left has them too.
function steps.dropped()
  if redis.call('HDEL', follower, dropping) == 0 then
    return 0
  end
  local start = redis.call('HGET', follower, names)
  redis.call('HDEL', follower, names)
  if live == generation then
    redis.call('HDEL', follower, 'live')
  end
  if state[3] == generation then
    redis.call('HDEL', follower, 'promoted')
  end
  local entries = redis.call('HGETALL', follower)
  for e = 1, #entries, 2 do
    if string.sub(entries[e], 1, 6) == 'names:' and entries[e + 1] == start then
      return 1
    end
  end
  if start and redis.call('HGET', KEYS[4], start) == follower then
    redis.call('HDEL', KEYS[4], start)
  end
  return 1
end

return steps[ARGV[1]]()
