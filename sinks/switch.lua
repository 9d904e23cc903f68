-- Switch some of the readers' names from one generation to another, each in one step with its version.
-- May be run again for the same names, at any time of the switch.
--
-- KEYS[1]  the follower's hash
-- KEYS[2] and so on, six for each name: document and version under the readers' name, then under the shadow name of the
--          generation that leaves, then of the one that comes
-- ARGV[1]  the generation that comes
-- Returns how many names changed hands. Renaming takes no memory, and keeps the time at which a name expires.

if redis.call('HGET', KEYS[1], 'switching') ~= ARGV[1] then
  return redis.error_reply('GENERATION moved')
end

local function move(document, version, to_document, to_version)
  if redis.call('EXISTS', document) == 1 then
    redis.call('RENAME', document, to_document)
  else
    redis.call('DEL', to_document)
  end
  redis.call('RENAME', version, to_version)
end

local moved = 0
for k = 2, #KEYS, 6 do
  local held = redis.call('GET', KEYS[k + 1])
  if not held or string.match(held, '^%d+', 21) ~= ARGV[1] then
    local comes = redis.call('EXISTS', KEYS[k + 5]) == 1
    if held then
      move(KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3])
    end
    if comes then
      move(KEYS[k + 4], KEYS[k + 5], KEYS[k], KEYS[k + 1])
    end
    if held or comes then
      moved = moved + 1
    end
  end
end
return moved
