-- After instance.lua. KEYS[1] the generation's hash. Returns the instance, and the checkpoint if there is one.

return {instance(), redis.call('HGET', KEYS[1], 'checkpoint')}
