-- Try every command of the other scripts on names that nobody uses, and leave nothing.
--
-- KEYS      one of ours, and one of the form that readers use
-- Returns the commands that the user may not give, in capitals.

local denied = {}
local function try(command, ...)
  local answer = redis.pcall(command, ...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, "NOPERM") or string.find(answer.err, "can't run this command") then
      denied[#denied + 1] = command
    else
      redis.call(command, ...)
    end
  end
end

try('TIME')
for number, name in ipairs(KEYS) do
  try('SET', name, '')
  if number == 1 then
    try('GET', name)
    try('STRLEN', name)
    try('MGET', name)
    try('EXISTS', name)
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
