-- The calls. Each has the set's key, and begins with run_id, definition and node.
local GRANTED, WAITING, REFUSED, GONE = 0, 1, 2, 3
local BUSY, RANGE, FULL, IN_GRACE, TOO_LONG = 1, 2, 3, 4, 5 -- why a request is refused
local LIST_MAX = 100

-- Returns an argument that must be a whole number from `least` to 2^53 - 1.
local function read_whole(c, i, least, name)
  local n = exact.number(c.args[i])
  if not n or n < least or n >= EXACT or n % 1 ~= 0 then
    state.fail('BADARG ' .. name)
  end
  return n
end

local function read_slot(c, i)
  local slot, serial = read_whole(c, i, 0, 'slot'), read_whole(c, i + 1, 1, 'serial')
  if slot >= SLOTS_MAX then
    state.fail('BADARG slot')
  end
  return slot, serial
end

local function check_args(c, n)
  if #c.args ~= n then
    state.fail('BADARG number of arguments')
  end
end

local FINDS, MAKES, LOOKS = {}, {creates = true}, {looks = true} -- how calls begin

-- Begins a call of a session. Returns the context, and the session or nil.
local function begin_in_session(keys, args, how, slot)
  local node = args[3] or ''
  local ticket = slot and args[slot] and exact.number(args[slot])
  local c = transaction.begin(keys, args, how, session_field(node),
                              ticket and ticket % 1 == 0 and ticket_field(node, ticket) or nil)
  if not c then
    return nil
  elseif node == '' then
    state.fail('BADARG node')
  end
  sessions.reap(c)
  return c, sessions.find(c, node)
end

-- Begins a call that may bring the inbox of its node: then a session that is not there is opened.
local function begin_with_inbox(keys, args, slot)
  local inbox = args[4]
  local c, session = begin_in_session(keys, args, inbox ~= '' and MAKES or FINDS, slot)
  if c and not session and inbox ~= '' then
    session = sessions.open(c, c.node, inbox)
  end
  return c, session
end

-- Ends a call of a node that has no session here: it was reaped, or lost with the data.
local function refuse_session(c)
  local reply = redis.error_reply('NOSESSION it has ended, or there was none')
  return c and transaction.finish(c, reply) or reply
end

-- Returns us until the calling node's waiter at the head is ready; -1: no timer is needed.
local function own_timer(c)
  return c.timer_us or -1
end

local function granted_reply(c, fence, at)
  return {GRANTED, fence, at, c.now}
end

local function refused_reply(reason, limiting, us)
  return {REFUSED, reason, limiting - 1, us > 0 and us < NEVER and us or -1}
end

local function range_reply(limiting)
  return refused_reply(RANGE, limiting, 0)
end

-- Returns what of a grant was used: one argument for each limit, `-` for all.
local function read_used(c, from, amounts)
  local used = {}
  for i = 1, c.plan.n do
    local word = c.args[from + i - 1]
    used[i] = word == '-' and amounts[i] or read_whole(c, from + i - 1, 0, 'amount used')
  end
  return used
end

-- Ends what is known of a ticket. `used_from`: the argument with what was used of the first limit,
-- nil for all of it. Returns the kind of the ticket, or nil if there is none.
local function end_ticket(c, slot, serial, used_from, undo)
  local ticket = sessions.ticket(c, c.node, slot)
  if not ticket or ticket[SERIAL] ~= serial then
    return nil
  end
  local amounts = sessions.amounts(c, ticket)
  if ticket[KIND] == IS_WAITING then
    queue.remove(c, ticket[FENCE], amounts)
    c.v[head.CANCELED] = c.v[head.CANCELED] + 1
  else
    local used = used_from and read_used(c, used_from, amounts) or amounts
    limits.give_back(c, amounts, used, ticket[AT], undo)
    c.v[head.RELEASED] = c.v[head.RELEASED] + 1
  end
  sessions.drop_ticket(c, c.node, slot)
  return ticket[KIND]
end

-- Returns what is known of a ticket, or nil if it is new. A new one ends what is still in its slot:
-- the node has ended that, but this server has lost it.
local function known_reply(c, session, slot, serial)
  local ticket = sessions.ticket(c, c.node, slot)
  if ticket and ticket[SERIAL] == serial and ticket[KIND] == IS_HELD then
    return granted_reply(c, ticket[FENCE], ticket[AT])
  elseif ticket and ticket[SERIAL] == serial then
    return {WAITING, own_timer(c)}
  elseif serial <= session[HIGH] then
    return {GONE}
  elseif ticket then
    end_ticket(c, slot, ticket[SERIAL])
    queue.pump(c)
  end
end

local function may_pass(c)
  return c.plan.barges or c.v[head.WAITING] == 0
end

-- Returns us until a newcomer's request is granted (a lower bound if others wait), what determines
-- it, and the reason.
local function decide(c, amounts)
  local grace = c.v[head.GRACE] - c.now
  if grace > 0 then
    return grace, 0, IN_GRACE
  elseif limits.are_zero(amounts) then
    return 0, 0, BUSY
  elseif may_pass(c) then
    local us, limiting = limits.wait(c, amounts)
    return us, limiting, BUSY
  end
  local us, limiting = limits.forecast(c, amounts)
  return us > 0 and us or NEVER, limiting, BUSY
end

-- Refuses a request. It names the limit that determines when it would be granted, behind others or
-- by itself; or else the one that the head of the wait queue waits for.
local function refuse_request(c, amounts, reason, limiting, us)
  if limiting == 0 and reason ~= IN_GRACE then
    limiting = select(2, limits.wait(c, amounts))
  end
  local ahead = limiting == 0 and not may_pass(c) and queue.head(c)
  if ahead then
    limiting = select(2, limits.wait(c, ahead.amounts))
  end
  return refused_reply(reason, limiting, us)
end

-- Takes for a newcomer. If it passed waiters, what the head waits for may have changed.
local function take_now(c, amounts)
  limits.take(c, amounts)
  if c.v[head.WAITING] > 0 then
    queue.pump(c)
  end
end

local function grant(c, slot, serial, amounts, at)
  local fence = sessions.next_fence(c)
  sessions.put_ticket(c, c.node, slot, {serial, IS_HELD, fence, at, unpack(amounts)})
  c.v[head.GRANTED], c.changed = c.v[head.GRANTED] + 1, true
  return granted_reply(c, fence, at)
end

local function enqueue(c, request, us, limiting)
  local forecast = us < NEVER and us or limits.forecast(c, request.amounts)
  if c.v[head.WAITING] >= c.plan.queue_max then
    return refuse_request(c, request.amounts, FULL, limiting, forecast)
  elseif request.max_wait >= 0 and forecast > request.max_wait then
    return refuse_request(c, request.amounts, TOO_LONG, limiting, forecast)
  end
  local function instant_after(wait)
    return wait < 0 and NEVER or math.min(c.now + wait, NEVER)
  end
  queue.add(c, request.slot, request.serial, request.amounts, instant_after(request.timeout),
            instant_after(request.max_wait))
  queue.pump(c)
  return {WAITING, own_timer(c)}
end

local function acquire_new(c, request)
  local amounts, impossible = request.amounts, limits.impossible(c, request.amounts)
  if impossible then
    return range_reply(impossible)
  end
  local us, limiting, reason = decide(c, amounts)
  local is_foreign = limits.are_foreign(c, amounts)
  if us == 0 and not is_foreign then
    take_now(c, amounts)
    return grant(c, request.slot, request.serial, amounts, c.now)
  elseif request.mode == 'try' and is_foreign then
    state.fail('BADARG nodes decide this: weir_commit')
  elseif request.mode == 'try' then
    return refuse_request(c, amounts, reason, limiting, us)
  end
  return enqueue(c, request, us, limiting)
end

-- weir_acquire RUN DEFINITION NODE INBOX SLOT SERIAL MODE TIMEOUT MAX_WAIT AMOUNT...
local function weir_acquire(keys, args)
  local c, session = begin_with_inbox(keys, args, 5)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 9 + c.plan.n)
  local slot, serial = read_slot(c, 5)
  local request = {slot = slot, serial = serial, mode = args[7], amounts = limits.read(c, 10),
                   timeout = read_whole(c, 8, -1, 'timeout'),
                   max_wait = read_whole(c, 9, -1, 'max_wait')}
  if request.mode ~= 'try' and request.mode ~= 'wait' then
    state.fail('BADARG mode')
  end
  queue.pump(c)
  return transaction.finish(c, known_reply(c, session, slot, serial) or acquire_new(c, request))
end

-- What is taken for good, or in advance, is rates and calls.
local function check_final(c, amounts)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    if p.kind.holds and amounts[i] > 0 then
      state.fail('BADARG a resource is neither taken for good nor reserved')
    end
  end
end

local function check_decidable(c, amounts)
  check_final(c, amounts)
  if limits.are_foreign(c, amounts) then
    state.fail('BADARG nodes decide this: weir_commit')
  end
end

-- weir_take RUN DEFINITION NODE AMOUNT...
local function weir_take(keys, args)
  local c = transaction.begin(keys, args, MAKES)
  check_args(c, 3 + c.plan.n)
  local amounts = limits.read(c, 4)
  check_decidable(c, amounts)
  sessions.reap(c)
  queue.pump(c)
  local impossible = limits.impossible(c, amounts)
  if impossible then
    return transaction.finish(c, range_reply(impossible))
  end
  local us, limiting, reason = decide(c, amounts)
  if us > 0 then
    return transaction.finish(c, refuse_request(c, amounts, reason, limiting, us))
  end
  take_now(c, amounts)
  return transaction.finish(c, granted_reply(c, 0, c.now))
end

-- weir_reserve RUN DEFINITION NODE INBOX SLOT SERIAL MAX_WAIT AMOUNT...
local function weir_reserve(keys, args)
  local c, session = begin_with_inbox(keys, args, 5)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 7 + c.plan.n)
  local slot, serial = read_slot(c, 5)
  local max_wait, amounts = read_whole(c, 7, -1, 'max_wait'), limits.read(c, 8)
  check_decidable(c, amounts)
  queue.pump(c)
  local reply, impossible = known_reply(c, session, slot, serial), limits.impossible(c, amounts)
  if reply or impossible then
    return transaction.finish(c, reply or range_reply(impossible))
  end
  local us, limiting, reason = decide(c, amounts)
  if us > 0 and c.v[head.WAITING] > 0 or reason == IN_GRACE then
    return transaction.finish(c, refuse_request(c, amounts, reason, limiting, us))
  elseif max_wait >= 0 and us > max_wait then
    return transaction.finish(c, refused_reply(TOO_LONG, limiting, us))
  end
  local now, at = c.now, c.now + us
  if us > 0 then
    c.v[head.FLOOR] = at
  end
  c.now = at
  limits.take(c, amounts)
  c.now = now
  return transaction.finish(c, grant(c, slot, serial, amounts, at))
end

-- weir_release RUN DEFINITION NODE SLOT SERIAL HOW USED...
local function weir_release(keys, args)
  local c, session = begin_in_session(keys, args, FINDS, 4)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 6 + c.plan.n)
  local slot, serial = read_slot(c, 4)
  if args[6] ~= 'end' and args[6] ~= 'undo' then
    state.fail('BADARG how')
  end
  local kind = end_ticket(c, slot, serial, 7, args[6] == 'undo')
  queue.pump(c)
  return transaction.finish(c, {kind and GRANTED or GONE, own_timer(c)})
end

-- Gives back all but what is left of a ticket that is held.
local function return_part(c, slot, ticket, left)
  local amounts, back, none = sessions.amounts(c, ticket), {}, {}
  for i, n in ipairs(amounts) do
    if left[i] > n then
      state.fail('BADARG more is left than was held')
    end
    back[i], none[i], ticket[TICKET_WORDS + i] = n - left[i], 0, left[i]
  end
  limits.give_back(c, back, none, ticket[AT])
  sessions.put_ticket(c, c.node, slot, ticket)
end

-- weir_return RUN DEFINITION NODE SLOT SERIAL LEFT...
local function weir_return(keys, args)
  local c, session = begin_in_session(keys, args, FINDS, 4)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 5 + c.plan.n)
  local slot, serial = read_slot(c, 4)
  local left, ticket = limits.read(c, 6), sessions.ticket(c, c.node, slot)
  if not ticket or ticket[SERIAL] ~= serial or ticket[KIND] ~= IS_HELD then
    return transaction.finish(c, {GONE, own_timer(c)})
  end
  return_part(c, slot, ticket, left)
  queue.pump(c)
  return transaction.finish(c, {GRANTED, own_timer(c)})
end

-- weir_cancel RUN DEFINITION NODE SLOT SERIAL
local function weir_cancel(keys, args)
  local c, session = begin_in_session(keys, args, FINDS, 4)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 5)
  local slot, serial = read_slot(c, 4)
  local ticket = sessions.ticket(c, c.node, slot)
  if ticket and ticket[SERIAL] == serial and ticket[KIND] == IS_HELD then
    return transaction.finish(c, granted_reply(c, ticket[FENCE], ticket[AT]))
  end
  if ticket and ticket[SERIAL] < serial then
    end_ticket(c, slot, ticket[SERIAL]) -- the node has ended it, and this server has lost that
  end
  local kind = end_ticket(c, slot, serial)
  if not kind and session[HIGH] < serial then
    session[HIGH] = serial -- so that a request that is still on its way comes too late
    sessions.write(c, c.node, session)
  end
  queue.pump(c)
  return transaction.finish(c, {kind and WAITING or GONE, own_timer(c)})
end

local function session_reply(c, session)
  return {c.now, math.max(0, c.v[head.GRACE] - c.now), session[HELD], session[HELD_SUM],
          session[WAITS], session[WAITS_SUM], own_timer(c), sessions.count(c)}
end

-- weir_open RUN DEFINITION NODE INBOX KNOWN
local function weir_open(keys, args)
  local c = begin_in_session(keys, args, {creates = true, was_known = args[5] == '1'})
  check_args(c, 5)
  local session = sessions.open(c, c.node, args[4])
  queue.pump(c)
  return transaction.finish(c, session_reply(c, session))
end

-- weir_heartbeat RUN DEFINITION NODE
local function weir_heartbeat(keys, args)
  local c, session = begin_in_session(keys, args, FINDS)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 3)
  session[EXPIRY] = c.now + c.plan.lease
  sessions.write(c, c.node, session)
  queue.pump(c)
  return transaction.finish(c, session_reply(c, session))
end

-- weir_pump RUN DEFINITION NODE
local function weir_pump(keys, args)
  local c, session = begin_in_session(keys, args, FINDS)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 3)
  queue.pump(c)
  return transaction.finish(c, {c.now, own_timer(c)})
end

-- Converts nothing where it only checks, or where the definition that is stored is the same or of a
-- higher revision. The state is as it was until the call ends, so the field has what was stored.
-- weir_redefine RUN DEFINITION NODE HOW
local function weir_redefine(keys, args)
  local checks = args[4] == 'check'
  local c = transaction.begin(keys, args, checks and LOOKS or FINDS)
  if not c then
    return redis.error_reply('NOSET there is none')
  end
  check_args(c, 4)
  if not checks and args[4] ~= 'change' then
    state.fail('BADARG how')
  end
  local stored = redis.call('HGET', c.key, 'D')
  if checks or c.is_earlier or stored == args[2] then
    return {stored}
  end
  sessions.reap(c)
  c.node = '' -- also a waiter of this node is told by its inbox
  queue.pump(c)
  return transaction.finish(c, {stored})
end

-- weir_leave RUN DEFINITION NODE
local function weir_leave(keys, args)
  local c, session = begin_in_session(keys, args, FINDS)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 3)
  local inbox = sessions.close(c, c.node, session)
  queue.pump(c)
  return transaction.finish(c, {session[HELD], session[WAITS], inbox})
end

-- Takes what a node says that it holds, and this server does not know.
local function assert_hold(c, from)
  local slot, serial = read_slot(c, from)
  local fence, at = read_whole(c, from + 2, 0, 'fence'), read_whole(c, from + 3, 0, 'instant')
  local amounts, ticket = limits.read(c, from + 4), sessions.ticket(c, c.node, slot)
  if ticket and ticket[SERIAL] == serial and ticket[KIND] == IS_HELD then
    return true
  elseif c.now >= c.v[head.GRACE] or (ticket and ticket[SERIAL] > serial) then
    return false
  elseif ticket then -- the lost writes ended this one, or granted it
    sessions.end_ticket(c, ticket, head.RELEASED)
  end
  limits.assert(c, amounts)
  sessions.put_ticket(c, c.node, slot, {serial, IS_HELD, fence, at, unpack(amounts)})
  c.v[head.FENCE] = math.max(c.v[head.FENCE], fence)
  c.v[head.GRANTED] = c.v[head.GRANTED] + 1
  return true
end

-- weir_assert RUN DEFINITION NODE INBOX (SLOT SERIAL FENCE AT AMOUNT...)...
local function weir_assert(keys, args)
  local c, session = begin_in_session(keys, args, {creates = true, was_known = true})
  if not session and c.now < c.v[head.GRACE] then
    session = sessions.open(c, c.node, args[4])
  end
  if not session then
    return refuse_session(c)
  end
  local words, lost = TICKET_WORDS + c.plan.n, {}
  if (#args - 4) % words ~= 0 then
    state.fail('BADARG number of arguments')
  end
  for from = 5, #args, words do
    if not assert_hold(c, from) then
      lost[#lost + 1], lost[#lost + 2] = tonumber(args[from]), tonumber(args[from + 1])
    end
  end
  session[EXPIRY] = c.now + c.plan.lease
  sessions.set_inbox(c, c.node, args[4])
  sessions.write(c, c.node, session)
  queue.pump(c)
  return transaction.finish(c, {session_reply(c, session), lost})
end

-- weir_list RUN DEFINITION NODE CURSOR
local function weir_list(keys, args)
  local c, session = begin_in_session(keys, args, LOOKS)
  if not session then
    return refuse_session(c)
  end
  check_args(c, 4)
  local slot, tickets = read_whole(c, 4, 0, 'cursor'), {}
  sessions.fetch_tickets(c, c.node, slot, math.min(slot + LIST_MAX, session[SLOTS]))
  for _ = 1, math.min(LIST_MAX, session[SLOTS] - slot) do
    local ticket = sessions.ticket(c, c.node, slot)
    if ticket then
      local is_held = ticket[KIND] == IS_HELD
      tickets[#tickets + 1] = {slot, ticket[SERIAL], is_held and GRANTED or WAITING,
                               is_held and ticket[FENCE] or 0, ticket[AT]}
    end
    slot = slot + 1
  end
  return transaction.finish(c, {slot < session[SLOTS] and slot or -1, tickets})
end

-- Returns the limit of a batch. By a definition that had batches, or has, there may be some.
local function read_batch_limit(c, is_possible)
  local p = c.plan.limits[read_whole(c, 4, 0, 'limit') + 1]
  if not p or not (p.delta > 0 or (is_possible and p.kind.batch_us)) then
    state.fail('BADARG a limit without batches')
  end
  return p
end

-- weir_batch RUN DEFINITION NODE LIMIT WANTED
local function weir_batch(keys, args)
  local c = transaction.begin(keys, args, MAKES)
  check_args(c, 5)
  local p, amounts = read_batch_limit(c, c.is_earlier), {}
  local wanted = math.min(read_whole(c, 5, 1, 'amount'), p.max)
  for i = 1, c.plan.n do
    amounts[i] = i == p.index and exact.div(wanted + 1, 2) or 0
  end
  sessions.reap(c)
  queue.pump(c)
  if p.delta == 0 then
    return transaction.finish(c, refused_reply(BUSY, p.index, NEVER))
  end
  local us, limiting, reason = decide(c, amounts)
  if us > 0 then
    return transaction.finish(c, refuse_request(c, amounts, reason, limiting, us))
  end
  amounts[p.index] = math.min(wanted, p.kind.available(c, p))
  local usable = p.kind.batch_us(c, p)
  take_now(c, amounts)
  return transaction.finish(c, {GRANTED, amounts[p.index], usable, c.now})
end

-- weir_unbatch RUN DEFINITION NODE LIMIT AMOUNT AT
local function weir_unbatch(keys, args)
  local c = transaction.begin(keys, args, FINDS)
  if not c then
    return {GONE}
  end
  check_args(c, 6)
  local p = read_batch_limit(c, c.plan.revision > 0)
  local n, at = read_whole(c, 5, 1, 'amount'), read_whole(c, 6, 0, 'instant')
  if n > p.max and c.plan.revision == 0 then
    state.fail('BADARG amount')
  end
  sessions.reap(c)
  limits.undo_batch(c, p, math.min(n, p.max), at)
  queue.pump(c)
  return transaction.finish(c, {GRANTED})
end

-- weir_snapshot RUN DEFINITION NODE
local function weir_snapshot(keys, args)
  local c = transaction.begin(keys, args, LOOKS)
  if not c then
    return redis.error_reply('NOSET there is none')
  end
  local v = c.v
  return {c.now, c.clock, math.max(0, v[head.GRACE] - c.now), v[head.WAITING], v[head.GRANTED],
          v[head.RELEASED], v[head.REAPED], v[head.CANCELED], v[head.OVERDUE], v[head.FENCE],
          limits.describe(c)}
end
