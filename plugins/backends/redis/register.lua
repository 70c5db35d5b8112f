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

-- An inbox is in a cluster on the server of the set, and may have another slot.
local function register(name, call)
  redis.register_function({function_name = name, callback = guarded(call),
                           flags = {'allow-cross-slot-keys'}})
end

register('weir_acquire', weir_acquire)
register('weir_take', weir_take)
register('weir_reserve', weir_reserve)
register('weir_release', weir_release)
register('weir_return', weir_return)
register('weir_cancel', weir_cancel)
register('weir_open', weir_open)
register('weir_heartbeat', weir_heartbeat)
register('weir_pump', weir_pump)
register('weir_leave', weir_leave)
register('weir_assert', weir_assert)
register('weir_list', weir_list)
register('weir_commit', weir_commit)
register('weir_batch', weir_batch)
register('weir_unbatch', weir_unbatch)
redis.register_function({function_name = 'weir_snapshot', callback = guarded(weir_snapshot),
                         flags = {'no-writes'}})
redis.register_function({function_name = 'weir_fetch', callback = guarded(weir_fetch),
                         flags = {'no-writes'}})
