-- After instance.lua. Replace a generation's checkpoint if it is still the expected one, on the instance that was loaded
-- from: another one may have lost writes that are newer than the checkpoint that it still has.
-- KEYS[1]  the generation's hash; ARGV[1] the new checkpoint; ARGV[2] the instance, empty where nothing was loaded;
--          ARGV[3] the expected checkpoint, absent where there is none yet
-- Returns 1 when it is now the new one, also when it already was: then an earlier answer was lost, or it is asked for.

if redis.call('EXISTS', KEYS[1]) == 0 or (ARGV[2] ~= '' and ARGV[2] ~= instance()) then
  return 0
end
local current = redis.call('HGET', KEYS[1], 'checkpoint')
if current == ARGV[1] then
  return 1
end
if current ~= (ARGV[3] or false) then
  return 0
end
redis.call('HSET', KEYS[1], 'checkpoint', ARGV[1])
return 1
