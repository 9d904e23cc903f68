-- Read documents with their versions, all as of one moment. (A transaction would do, but a full server refuses those.)
-- KEYS[1]  the follower's hash; KEYS[2] and so on: the documents' names, then as many names of their versions: 1,000 at
--          the most, since Lua gives a command some 8,000 arguments
-- ARGV[1]  `json` or `hash`
-- Returns `live`, `switching`, the documents (a hash as fields and values in turn) and the version records. What is not a
-- document is nil.

local state = redis.call('HMGET', KEYS[1], 'live', 'switching')
local count = (#KEYS - 1) / 2
local documents = {}
if ARGV[1] == 'hash' then
  for n = 1, count do
    local document = redis.pcall('HGETALL', KEYS[1 + n])
    documents[n] = not document.err and #document > 0 and document
  end
else
  documents = redis.call('MGET', unpack(KEYS, 2, 1 + count))
end
return {state[1], state[2], documents, redis.call('MGET', unpack(KEYS, 2 + count))}
