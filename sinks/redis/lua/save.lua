-- Replace a generation's checkpoint if it is still the expected one.
-- KEYS[1]  the generation's hash; ARGV[1] the new checkpoint; ARGV[2] the expected one, absent where there is none yet
-- Returns 1 when it is now the new one, also when it already was: then an earlier answer was lost.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local current = redis.call('HGET', KEYS[1], 'checkpoint')
if current == ARGV[1] then
  return 1
end
if current ~= (ARGV[2] or false) then
  return 0
end
redis.call('HSET', KEYS[1], 'checkpoint', ARGV[1])
return 1
