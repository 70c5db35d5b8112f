-- The beginning and the end of a call: the instant, the state, the epoch, the writes.
local transaction = {}

do -- all else is of this file alone: the library can have 200 local names at once
local CLOCK_STEP_MAX = 1000000 -- us
local NODE_MAX = 128 -- bytes of its name

-- Returns the server's clock, us since 1970.
local function clock_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local server_run, server_start -- what this process knows of itself

-- Returns the run_id of this server and the instant of its start, us.
local function server_identity()
  if not server_run then
    local info = redis.call('INFO', 'server')
    server_run = string.match(info, 'run_id:(%x+)')
    server_start = clock_us() - 1000000 * string.match(info, 'uptime_in_seconds:(%d+)')
  end
  return server_run, server_start
end

-- The last time this server, as a replica, took over: its place in the stream of writes, and when it
-- was noticed.
local takeover, takeover_at = '-1', 0

-- Returns the instant since which this server has been the only one to make sets: that of its start,
-- or of the first set after it took over. A replica has been up for long, and may lack sets even so.
local function server_alone_since(clock)
  local _, start = server_identity()
  local info = redis.call('INFO', 'replication')
  local place = string.match(info, 'second_repl_offset:(%-?%d+)') or takeover
  if place ~= takeover then
    takeover, takeover_at = place, place == '-1' and takeover_at or clock
  end
  return math.max(start, takeover_at)
end

-- Reads the fields that every call needs, and up to two of this call, in one go. Where the head is as the
-- last call has left it, so are the definition and the run_id. Returns the fields; tables with room for
-- what is written and unpacked of them, as one that grows takes time; and the definition.
local function transaction_fetch(key, before, a, b)
  local call, values, definition, run = redis.call, nil, nil, nil
  if before then
    values = b and call('HMGET', key, 'H', a, b) or a and call('HMGET', key, 'H', a) or
      call('HMGET', key, 'H')
  else
    values = b and call('HMGET', key, 'H', a, b, 'D', 'R') or a and call('HMGET', key, 'H', a, 'D', 'R') or
      call('HMGET', key, 'H', 'D', 'R')
  end
  local head_text, n = values[1], #values
  if not before then
    definition, run = values[n - 1], values[n]
  elseif head_text == before.fields.H then
    definition, run = before.plan.text, before.fields.R
  else
    definition, run = unpack(call('HMGET', key, 'D', 'R'))
  end
  if b then
    return {H = head_text, R = run, [a] = values[2], [b] = values[3]}, {[a] = false, [b] = false},
      {H = false, [a] = false, [b] = false}, definition
  elseif a then
    return {H = head_text, R = run, [a] = values[2]}, {[a] = false}, {H = false, [a] = false}, definition
  end
  return {H = head_text, R = run}, {}, {H = false}, definition
end

-- Moves the instant on. The clock of the server may be set back: by little, time stands still until
-- it is there again; by more, it goes on from where it was. That of another server has its own shift.
local function transaction_set_time(c)
  local v, clock = c.v, clock_us()
  c.clock, c.is_moved = clock, c.fields.R ~= server_identity()
  if c.is_moved then
    v[head.SHIFT] = math.max(0, v[head.LAST] - clock)
  elseif clock + v[head.SHIFT] < v[head.LAST] - CLOCK_STEP_MAX then
    v[head.SHIFT] = v[head.LAST] - clock
  end
  local now, last = clock + v[head.SHIFT], v[head.LAST]
  c.now = now > last and now or last
  c.wall_offset = clock - c.now
end

local function transaction_drain(c)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    if p.kind.drain and c.plan.drains then
      p.kind.drain(c, p)
    end
  end
end

-- Makes the state of a set that is not there. It may have been there before the server started or
-- took over, or before data was lost: then it begins with a time of grace.
local function transaction_create(c, was_known)
  local v = {}
  for i = 1, c.plan.words do
    v[i] = 0
  end
  v[head.FORMAT], v[head.EXPIRY], v[head.FIRST], v[head.NEXT] = FORMAT, NEVER, 1, 1
  c.v = v
  transaction_set_time(c)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    p.kind.init(c, p)
  end
  state.put(c, 'D', c.plan.text)
  state.put(c, 'R', (server_identity()))
  if was_known or c.clock - server_alone_since(c.clock) < c.plan.lease + 1000000 then
    v[head.GRACE] = c.now + c.plan.lease
    transaction_drain(c)
  end
end

local function transaction_read_head(c)
  local blob, before = c.fields.H, c.before
  if before and before.fields.H == blob then
    c.v = before.v
    c.tables.H = before.v
    return
  elseif #blob >= 8 and struct.unpack('<d', blob) > FORMAT then
    state.fail('FORMAT of another version')
  end
  c.v = state.numbers(c, 'H', c.plan.words)
end

-- Another server answers than the one that last changed the state: it has restarted, or a replica
-- took over. Writes may have been lost, so nothing is granted for a lease, during which nodes
-- assert what they hold.
local function transaction_check_epoch(c, run)
  local actual = server_identity()
  if run ~= actual then
    state.fail('STALERUN ' .. actual)
  elseif c.is_moved then
    state.put(c, 'R', actual)
    c.v[head.GRACE] = math.max(c.v[head.GRACE], c.now + c.plan.lease)
    transaction_drain(c)
  end
end

local valid_node -- the last one that was looked at

local function transaction_check_node(node)
  if node ~= '' and not string.find(node, '^[%w_:-]+$') or #node > NODE_MAX then
    state.fail('BADARG node')
  end
  valid_node = node
end

-- Changes the definition of the set, and its state with it. A fence is used up, so that no other
-- server takes the numbers of the head for those that it has left.
local function transaction_redefine(c, plan)
  limits.convert(c, plan)
  c.plan, c.is_earlier, c.v[head.FENCE] = plan, false, c.v[head.FENCE] + 1
  state.put(c, 'D', plan.text)
end

-- Begins a call: keys of the call, then its arguments: run_id, definition, node. `how.creates`: a
-- set that is not there is made. `how.looks`: nothing is changed. `a`, `b`: fields to be read at once,
-- or nil. Returns the context, or nil if there is none.
function transaction.begin(keys, args, how, a, b)
  if #keys ~= 1 or #args < 3 then
    state.fail('BADARG one key, run_id, definition and node')
  end
  if args[3] ~= valid_node then
    transaction_check_node(args[3])
  end
  local key = keys[1]
  local before = state.recall(key)
  local fields, written, tables, stored = transaction_fetch(key, before, a, b)
  local plan, successor = definition.plan(args[2], stored)
  if before and before.plan ~= plan then
    before = nil
  end
  local c = {key = key, node = args[3], args = args, plan = plan, fields = fields, written = written,
             tables = tables, order = {nil, nil, nil}, before = before, changed = false, v = false,
             clock = 0, is_moved = false, now = 0, wall_offset = 0, timer_us = false,
             is_earlier = plan.text ~= args[2]}
  if c.fields.H then
    transaction_read_head(c)
    transaction_set_time(c)
    transaction_check_epoch(c, args[1])
    if successor and not how.looks then
      transaction_redefine(c, successor)
    end
    return c
  end
  if args[1] ~= server_identity() then
    state.fail('STALERUN ' .. server_identity())
  elseif how.creates then
    transaction_create(c, how.was_known)
    return c
  end
  return nil
end

local function write_in_parts(command, key, words)
  local n = #words
  if n <= 2000 then
    return redis.call(command, key, unpack(words))
  end
  for i = 1, n, 2000 do
    redis.call(command, key, unpack(words, i, math.min(i + 1999, n)))
  end
end

-- The hash lasts for as long as its state differs from that of a new set, and then a while.
local function transaction_keep(c)
  local v, keep = c.v, c.plan.keep
  local until_us = keep and math.max(c.now, v[head.FLOOR]) + keep
  if until_us and c.plan.has_foreign then
    until_us = math.max(until_us, tonumber(state.get(c, 'K') or 0))
  end
  if until_us and until_us >= EXACT / 2 then
    until_us = nil
  end
  if not until_us then
    if v[head.KEPT] ~= 0 then
      redis.call('PERSIST', c.key)
      v[head.KEPT] = 0
    end
  elseif v[head.KEPT] < until_us then
    v[head.KEPT] = until_us + math.max(exact.div(keep, 4), 1000000)
    return exact.div(v[head.KEPT] - c.now, 1000) + 1
  end
end

-- Tells a node something, in its inbox. What is lost there is found by the next heartbeat.
local function push_all(c)
  for _, message in ipairs(c.pushes) do
    redis.pcall('RPUSH', message.inbox, message.text .. ' ' .. c.key)
    redis.pcall('PEXPIRE', message.inbox, exact.div(c.plan.lease, 500) + 1)
  end
end

-- Ends a call that has changed something.
function transaction.commit(c)
  local v, fields, order, puts, drops = c.v, c.fields, c.order, {'H', '', nil, nil, nil, nil}, nil
  v[head.LAST] = c.now
  local expire_ms = transaction_keep(c)
  puts[2] = struct.pack(state.format(c.plan.words), unpack(v))
  fields.H, c.tables.H = puts[2], v
  local n = 2
  for i = 1, #order do
    local field = order[i]
    local value = fields[field]
    if value then
      puts[n + 1], puts[n + 2], n = field, value, n + 2
    else
      drops = drops or {}
      drops[#drops + 1] = field
    end
  end
  write_in_parts('HSET', c.key, puts)
  if drops then
    write_in_parts('HDEL', c.key, drops)
  end
  if expire_ms then
    redis.call('PEXPIRE', c.key, string.format('%d', expire_ms))
  end
  if c.pushes then
    push_all(c)
  end
  state.keep(c)
end

-- Ends a call, with the reply.
function transaction.finish(c, reply)
  if c.changed then
    transaction.commit(c)
  end
  return reply
end
end
