-- Read documents with their versions, all as of one moment. (A transaction would do, but a full server refuses those.)
-- KEYS[1]  the follower's hash; KEYS[2] and so on: the documents' names, then as many names of their versions: 1,000 at
--          the most, since Lua gives a command some 8,000 arguments
-- ARGV[1]  `json` or `hash`
-- ARGV[2]  how many bytes of documents are enough: what lies behind the one that reaches it is not looked at
-- Returns `live`, `switching`, the documents (a hash as fields and values in turn) and the version records: of all
-- names or of the first ones. What is not a document is nil.

local state = redis.call('HMGET', KEYS[1], 'live', 'switching')
local count = (#KEYS - 1) / 2
local enough = tonumber(ARGV[2])
local documents, looked, bytes = {}, 0, 0
while looked < count and bytes < enough do
  looked = looked + 1
  if ARGV[1] == 'hash' then
    local document = tried('HGETALL', KEYS[1 + looked]) or {}
    documents[looked] = #document > 0 and document
    for n = 1, #document do
      bytes = bytes + #document[n]
    end
  else
    bytes = bytes + (tried('STRLEN', KEYS[1 + looked]) or 0)
  end
end
if ARGV[1] ~= 'hash' then
  documents = redis.call('MGET', unpack(KEYS, 2, 1 + looked))
end
return {state[1], state[2], documents, redis.call('MGET', unpack(KEYS, 2 + count, 1 + count + looked))}
