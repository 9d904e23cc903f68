-- For every script that goes on with this text: what one name has changes hands in the course of a switch.

local function under(record, generation)
  return record and string.match(record, '^%d+', 21) == generation
end

-- A version record; nil where there is none, or something that is none of ours.
local function recorded(name)
  local found = tried('GET', name)
  return found and string.find(found, '^%d+[+-]') == 1 and found or nil
end

local function rename(record, document, version, to_document, to_version)
  -- Deleted, expired, or taken away by somebody: then there is no document to rename.
  if string.sub(record, 20, 20) == '-' or not tried('RENAME', document, to_document) then
    redis.call('DEL', to_document)
  end
  redis.call('RENAME', version, to_version)
end

-- KEYS[k] and five more: document and version under the readers' name, then under the shadow name of the generation that
-- leaves, then of the one that comes. A name that has changed hands is left alone. Renaming takes no memory, and keeps the
-- time at which a name expires. Returns whether there was anything to do.
local function move(k, coming)
  local held = recorded(KEYS[k + 1])
  if under(held, coming) then
    return false
  end
  local comes = recorded(KEYS[k + 5])
  if held then
    rename(held, KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3])
  end
  if comes then
    rename(comes, KEYS[k + 4], KEYS[k + 5], KEYS[k], KEYS[k + 1])
  end
  return held or comes
end

