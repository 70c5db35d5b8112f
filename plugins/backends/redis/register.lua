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

redis.register_function('weir_acquire', guarded(weir_acquire))
redis.register_function('weir_take', guarded(weir_take))
redis.register_function('weir_reserve', guarded(weir_reserve))
redis.register_function('weir_release', guarded(weir_release))
redis.register_function('weir_return', guarded(weir_return))
redis.register_function('weir_cancel', guarded(weir_cancel))
redis.register_function('weir_open', guarded(weir_open))
redis.register_function('weir_heartbeat', guarded(weir_heartbeat))
redis.register_function('weir_pump', guarded(weir_pump))
redis.register_function('weir_leave', guarded(weir_leave))
redis.register_function('weir_assert', guarded(weir_assert))
redis.register_function('weir_list', guarded(weir_list))
redis.register_function('weir_commit', guarded(weir_commit))
redis.register_function('weir_batch', guarded(weir_batch))
redis.register_function('weir_unbatch', guarded(weir_unbatch))
redis.register_function({function_name = 'weir_snapshot', callback = guarded(weir_snapshot),
                         flags = {'no-writes'}})
redis.register_function({function_name = 'weir_fetch', callback = guarded(weir_fetch),
                         flags = {'no-writes'}})
