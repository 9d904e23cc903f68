-- Remove documents and versions of a generation that is being dropped, and no others: where it was made anew meanwhile,
-- nothing is removed.
-- KEYS[1]  the follower's hash; KEYS[2] and so on: names; ARGV[1] the generation
-- Returns 1, or 0 when it is not being dropped.

if redis.call('HEXISTS', KEYS[1], 'dropping:' .. ARGV[1]) == 0 then
  return 0
end
for k = 2, #KEYS do
  redis.call('UNLINK', KEYS[k])
end
return 1
