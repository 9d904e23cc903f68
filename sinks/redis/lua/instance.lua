-- What tells this server from one that may hold less: the process, which a restart changes, and the history that replicas
-- copy, which a failover changes, also where the server before comes back as a replica and is promoted later.

local function instance()
  local process = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  return (process or '') .. ' ' .. (history or '')
end

