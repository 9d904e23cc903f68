-- Read documents with their versions, all as of one moment. (A transaction would do, but a full server refuses those.)
-- KEYS[1]  the follower's hash; KEYS[2] and so on: the documents' names, then as many names of their versions
-- ARGV[1]  `json` or `hash`
-- Returns `live`, `switching`, the documents (a hash as fields and values in turn) and the version records. What is not a
-- document is nil.

local state = redis.call('HMGET', KEYS[1], 'live', 'switching')
local count = (#KEYS - 1) / 2
local documents, records = {}, {}
local get = ARGV[1] == 'hash' and 'HGETALL' or 'GET'
for n = 1, count do
  local document = redis.pcall(get, KEYS[1 + n])
  if type(document) == 'table' and (document.err or #document == 0) then
    document = false
  end
  documents[n] = document
  records[n] = redis.call('GET', KEYS[1 + count + n])
end
return {state[1], state[2], documents, records}
