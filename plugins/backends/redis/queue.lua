-- The wait queue: places in the order of arrival. A place that is left early stays empty, and is
-- skipped. The head is granted as soon as it fits, by whichever call comes next: a release, a
-- cancellation, a heartbeat, or the node of the head when its timer runs out.
local PUMP_MAX = 64 -- grants of one call

-- Numbers of a waiter; the amounts follow, then the name of the node.
local DEADLINE, PATIENCE, SLOT, TICKET = 1, 2, 3, 4
local WAITER_WORDS = 4
local ENDED_TIMEOUT, ENDED_MAX_WAIT, ENDED_RANGE = 1, 2, 3

local function queue_field(place)
  return string.format('w%d', place)
end

local function queue_read(c, place)
  local blob = state.get(c, queue_field(place))
  if not blob then
    return nil
  end
  local words = WAITER_WORDS + c.plan.n
  local waiter = state.unpack(string.sub(blob, 1, 8 * words), words, queue_field(place))
  waiter.node, waiter.amounts = string.sub(blob, 8 * words + 1), {}
  for i = 1, c.plan.n do
    waiter.amounts[i] = waiter[WAITER_WORDS + i]
  end
  return waiter
end

-- Adds a waiter of the calling node. Returns its place.
function queue.add(c, slot, serial, amounts, deadline, patience)
  local v, place = c.v, c.v[head.NEXT]
  local numbers = {deadline, patience, slot, serial, unpack(amounts)}
  state.put(c, queue_field(place),
            struct.pack(state.format(#numbers), unpack(numbers)) .. c.node)
  v[head.NEXT], v[head.WAITING] = place + 1, v[head.WAITING] + 1
  limits.count_waiting(c, amounts, 1)
  sessions.put_ticket(c, c.node, slot, {serial, IS_WAITING, place, c.now, unpack(amounts)})
  return place
end

-- Empties a place.
function queue.remove(c, place, amounts)
  c.v[head.WAITING] = c.v[head.WAITING] - 1
  limits.count_waiting(c, amounts, -1)
  state.drop(c, queue_field(place))
end

local function queue_end(c, place, waiter, reason)
  queue.remove(c, place, waiter.amounts)
  sessions.drop_ticket(c, waiter.node, waiter[SLOT])
  c.v[head.OVERDUE] = c.v[head.OVERDUE] + 1
  sessions.push(c, waiter.node, string.format('E %d %d %d', waiter[SLOT], waiter[TICKET], reason))
end

-- Returns why a waiter waits no more, or nil. Only by another definition its amount can have become
-- impossible.
local function queue_end_of(c, waiter)
  if waiter[DEADLINE] <= c.now then
    return ENDED_TIMEOUT
  elseif waiter[PATIENCE] <= c.now then
    return ENDED_MAX_WAIT
  elseif c.plan.revision > 0 and limits.impossible(c, waiter.amounts) then
    return ENDED_RANGE
  end
end

-- Returns the first waiter that has not ended, and its place, or nil.
function queue.head(c)
  local v = c.v
  while v[head.WAITING] > 0 do
    local place = v[head.FIRST]
    if place >= v[head.NEXT] then
      state.fail('CORRUPT wait queue')
    end
    local waiter = queue_read(c, place)
    local reason = waiter and queue_end_of(c, waiter)
    if waiter and not reason then
      return waiter, place
    elseif waiter then
      queue_end(c, place, waiter, reason)
    end
    v[head.FIRST], c.changed = place + 1, true
  end
end

-- Has the node of the head keep a timer: the caller hears of it in the reply, another node by its
-- inbox, once for each instant.
local function queue_set_timer(c, waiter, place, us)
  local v, at = c.v, c.now + us
  if us >= NEVER then
    place, at = 0, 0
  elseif waiter.node == c.node then
    c.timer_us = us
  elseif v[head.TIMER_PLACE] == place and v[head.TIMER_AT] <= at and v[head.TIMER_AT] > c.now then
    return
  else
    sessions.push(c, waiter.node, string.format('T %d', us))
  end
  if v[head.TIMER_PLACE] ~= place or v[head.TIMER_AT] ~= at then
    v[head.TIMER_PLACE], v[head.TIMER_AT], c.changed = place, at, true
  end
end

-- Has the node of the head decide: once for each version of the state.
local function queue_ask_node(c, waiter, place)
  local v = c.v
  if waiter.node == c.node then
    c.timer_us = 0
  elseif v[head.TIMER_PLACE] ~= place or v[head.TIMER_AT] ~= v[head.VERSION] then
    sessions.push(c, waiter.node, 'D')
  end
  if v[head.TIMER_PLACE] ~= place or v[head.TIMER_AT] ~= v[head.VERSION] then
    v[head.TIMER_PLACE], v[head.TIMER_AT], c.changed = place, v[head.VERSION], true
  end
end

local function queue_grant(c, place, waiter)
  queue.remove(c, place, waiter.amounts)
  local fence = sessions.next_fence(c)
  limits.take(c, waiter.amounts)
  sessions.put_ticket(c, waiter.node, waiter[SLOT],
                      {waiter[TICKET], IS_HELD, fence, c.now, unpack(waiter.amounts)})
  c.v[head.GRANTED] = c.v[head.GRANTED] + 1
  sessions.push(c, waiter.node,
                string.format('G %d %d %d %d', waiter[SLOT], waiter[TICKET], fence, c.now))
end

-- Returns us until the head is granted.
local function queue_head_wait(c, waiter)
  local us = limits.wait(c, waiter.amounts)
  return math.max(us, c.v[head.GRACE] - c.now)
end

-- Grants what can be granted, in order. Every call that may have freed something ends with it.
function queue.pump(c)
  c.timer_us = false
  for i = 1, PUMP_MAX + 1 do
    local waiter, place = queue.head(c)
    if not waiter then
      return
    end
    local us = queue_head_wait(c, waiter)
    if us > 0 or i > PUMP_MAX then
      queue_set_timer(c, waiter, place, us)
      return
    elseif limits.are_foreign(c, waiter.amounts) then
      queue_ask_node(c, waiter, place)
      return
    end
    queue_grant(c, place, waiter)
  end
end
