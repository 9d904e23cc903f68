-- Switch some of the readers' names from one generation to another, each in one step with its version.
-- May be run again for the same names, at any time of the switch.
--
-- KEYS[1]  the follower's hash
-- KEYS[2] and so on, six for each name; see move.lua
-- ARGV[1]  the generation that comes
-- Returns how many names changed hands.

if redis.call('HGET', KEYS[1], 'switching') ~= ARGV[1] then
  return redis.error_reply('GENERATION moved')
end
local moved = 0
for k = 2, #KEYS, 6 do
  if move(k, ARGV[1]) then
    moved = moved + 1
  end
end
return moved
