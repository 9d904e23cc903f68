-- Try every command of the other scripts on names that nobody uses, and leave nothing.
--
-- KEYS      one of ours, and one of the form that readers use
-- Returns the commands that the user may not give, in capitals.

local denied = {}
local function try(command, ...)
  local call = {}
  for word in string.gmatch(command, '%S+') do call[#call + 1] = word end
  for _, argument in ipairs({...}) do call[#call + 1] = argument end
  local answer = redis.pcall(unpack(call))
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, "NOPERM") or string.find(answer.err, "can't run this command") then
      denied[#denied + 1] = command
    else
      redis.call(unpack(call))
    end
  end
end

try('TIME')
try('SCAN', '0')
for number, name in ipairs(KEYS) do
  try('SET', name, '')
  if number == 1 then
    try('GET', name)
    try('STRLEN', name)
    try('MGET', name)
    try('EXISTS', name)
    try('MEMORY USAGE', name)
    try('EXPIREAT', name, '4102444800')
    try('UNLINK', name)
    redis.pcall('DEL', name)
    try('HSET', name, 'a', '1')
    try('HSETNX', name, 'b', '1')
    try('HINCRBY', name, 'c', '1')
    try('HGET', name, 'a')
    try('HMGET', name, 'a')
    try('HGETALL', name)
    try('HLEN', name)
    try('HEXISTS', name, 'a')
    try('HDEL', name, 'b')
    redis.pcall('SET', name, '')
    try('RENAME', name, name)
  end
  try('DEL', name)
end
return denied
