-- Begin or finish a switch of the readers' names to another generation.
-- KEYS[1]  the follower's hash; KEYS[2] the generation's hash
-- ARGV[1]  `begin` or `finish`; ARGV[2] the generation
-- Returns the generation that is under the readers' names until the switch is finished, '0' for none.

local state = redis.call('HMGET', KEYS[1], 'live', 'switching')
if ARGV[1] == 'finish' then
  if state[2] == ARGV[2] then
    redis.call('HSET', KEYS[1], 'live', ARGV[2], 'promoted', ARGV[2])
    redis.call('HDEL', KEYS[1], 'switching')
  end
elseif redis.call('EXISTS', KEYS[2]) == 0 then
  return redis.error_reply('GENERATION missing')
elseif state[2] and state[2] ~= ARGV[2] then
  return redis.error_reply('GENERATION switching')
elseif state[1] == ARGV[2] then
  redis.call('HSET', KEYS[1], 'promoted', ARGV[2])
else
  redis.call('HSET', KEYS[1], 'switching', ARGV[2])
end
return state[1] or '0'
