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

local server -- what this process knows of itself

-- Returns the run_id of this server and the instant of its start, us.
local function server_identity()
  if not server then
    local info = redis.call('INFO', 'server')
    server = {run = string.match(info, 'run_id:(%x+)'),
              start = clock_us() - 1000000 * string.match(info, 'uptime_in_seconds:(%d+)')}
  end
  return server.run, server.start
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

-- Reads the fields of this call, and those that every call needs, in one go.
local function transaction_fetch(c, ...)
  local names, fields = {...}, c.fields
  local values = redis.call('HMGET', c.key, 'H', 'D', 'R', unpack(names))
  fields.H, fields.D, fields.R = values[1], values[2], values[3]
  for i = 1, #names do
    fields[names[i]] = values[3 + i]
  end
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
  c.now = math.max(clock + v[head.SHIFT], v[head.LAST])
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
  local is_known = before and before.fields.H == blob
  if not is_known and #blob >= 8 and struct.unpack('<d', blob) > FORMAT then
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
  if node == valid_node then
    return
  elseif node ~= '' and not string.find(node, '^[%w_:-]+$') or #node > NODE_MAX then
    state.fail('BADARG node')
  end
  valid_node = node
end

-- Begins a call: keys of the call, then its arguments: run_id, definition, node. `how.creates`: a
-- set that is not there is made. Returns the context, or nil if there is none.
function transaction.begin(keys, args, how, ...)
  local c = {key = keys[1], node = args[3], args = args, fields = {}, written = {}, order = {},
             tables = {}, pushes = {}}
  if #keys ~= 1 or #args < 3 then
    state.fail('BADARG one key, run_id, definition and node')
  end
  transaction_check_node(c.node)
  transaction_fetch(c, ...)
  c.plan = plan_of(args[2])
  if c.fields.D and c.fields.D ~= args[2] then
    state.fail('MISMATCH ' .. c.fields.D)
  end
  state.recall(c)
  if c.fields.H then
    transaction_read_head(c)
    transaction_set_time(c)
    transaction_check_epoch(c, args[1])
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
  for i = 1, #words, 2000 do
    redis.call(command, key, unpack(words, i, math.min(i + 1999, #words)))
  end
end

-- The hash lasts for as long as its state differs from that of a new set, and then a while.
local function transaction_keep(c)
  local v, keep = c.v, c.plan.keep
  local until_us = keep and math.max(c.now, v[head.FLOOR]) + keep
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
  local v, puts, drops = c.v, {'H', ''}, {}
  v[head.LAST] = c.now
  local expire_ms = transaction_keep(c)
  puts[2] = struct.pack(state.format(c.plan.words), unpack(v))
  c.fields.H, c.tables.H = puts[2], v
  for i = 1, #c.order do
    local field = c.order[i]
    local value = c.fields[field]
    if value then
      puts[#puts + 1], puts[#puts + 2] = field, value
    else
      drops[#drops + 1] = field
    end
  end
  write_in_parts('HSET', c.key, puts)
  write_in_parts('HDEL', c.key, drops)
  if expire_ms then
    redis.call('PEXPIRE', c.key, string.format('%d', expire_ms))
  end
  push_all(c)
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
