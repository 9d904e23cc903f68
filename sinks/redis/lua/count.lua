-- How many documents a generation has: those that last, and those whose second of expiry has not come yet.
-- KEYS[1]  the generation's hash

local counters = redis.call('HGETALL', KEYS[1])
local now = tonumber(redis.call('TIME')[1])
local documents = 0
for c = 1, #counters, 2 do
  local last = string.match(counters[c], '^until:(%d+)$')
  if last and tonumber(last) <= now then
    redis.call('HDEL', KEYS[1], counters[c])
  elseif last or counters[c] == 'documents' then
    documents = documents + tonumber(counters[c + 1])
  end
end
return documents
