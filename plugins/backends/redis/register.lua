-- What a client can call.

-- Returns the call with its errors as replies, which begin with the code.
local function guarded(call)
  return function(keys, args)
    local ok, reply = pcall(call, keys, args)
    if ok then
      return reply
    end
    local message = type(reply) == 'table' and reply.err or tostring(reply)
    local has_code = string.find(message, '^[A-Z]+ ')
    return redis.error_reply(has_code and message or 'CORRUPT ' .. message)
  end
end

-- An inbox is in a cluster on the server of the set, and may have another slot. `allow_oom`: the
-- call takes back or keeps what is there, and is needed most where no memory is left.
local function register(name, call, allow_oom)
  redis.register_function({function_name = name, callback = guarded(call),
                           flags = {'allow-cross-slot-keys', allow_oom}})
end

register('weir_acquire', weir_acquire)
register('weir_take', weir_take)
register('weir_reserve', weir_reserve)
register('weir_release', weir_release, 'allow-oom')
register('weir_return', weir_return, 'allow-oom')
register('weir_cancel', weir_cancel, 'allow-oom')
register('weir_open', weir_open)
register('weir_heartbeat', weir_heartbeat, 'allow-oom')
register('weir_pump', weir_pump, 'allow-oom')
register('weir_redefine', weir_redefine, 'allow-oom')
register('weir_leave', weir_leave, 'allow-oom')
register('weir_assert', weir_assert, 'allow-oom')
register('weir_list', weir_list, 'allow-oom')
register('weir_commit', weir_commit)
register('weir_batch', weir_batch)
register('weir_unbatch', weir_unbatch, 'allow-oom')
redis.register_function({function_name = 'weir_snapshot', callback = guarded(weir_snapshot),
                         flags = {'no-writes'}})
redis.register_function({function_name = 'weir_fetch', callback = guarded(weir_fetch),
                         flags = {'no-writes'}})
