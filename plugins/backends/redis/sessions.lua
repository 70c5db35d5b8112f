-- Sessions and tickets. A node opens a session in each set that it uses: a name with a random part,
-- which is never used again. A ticket is a slot of the session, a small number that the node uses
-- again and again, with a serial number that only grows. So a request that arrives twice is known,
-- and one that arrives late is too old.
local sessions, queue = {}, {}

-- Numbers of a session.
local EXPIRY, SLOTS, HIGH, HELD, HELD_SUM, WAITS, WAITS_SUM = 1, 2, 3, 4, 5, 6, 7
local SESSION_WORDS = 7
-- Numbers of a ticket; the amounts follow.
local SERIAL, KIND, FENCE, AT = 1, 2, 3, 4
local IS_WAITING, IS_HELD = 1, 2
local TICKET_WORDS, SLOTS_MAX, SUM_MODULUS = 4, 2 ^ 20, 2 ^ 32
local FETCHED = 500 -- tickets read at once

local field_node, field_slot, field_name -- the last one: a call needs one again and again

local function ticket_field(node, slot)
  if node ~= field_node or slot ~= field_slot then
    field_node, field_slot, field_name = node, slot, string.format('t%s.%d', node, slot)
  end
  return field_name
end

local session_node, session_name -- likewise

local function session_field(node)
  if node ~= session_node then
    session_node, session_name = node, 's' .. node
  end
  return session_name
end

-- Returns the session of a node, or nil.
function sessions.find(c, node)
  local field = session_field(node)
  return c.tables[field] or (state.get(c, field) and state.numbers(c, field, SESSION_WORDS)) or nil
end

function sessions.write(c, node, session)
  state.put_numbers(c, session_field(node), session)
end

local function sessions_names(c)
  local names = {}
  for name in string.gmatch(state.get(c, 'S') or '', '[^\n]+') do
    names[#names + 1] = name
  end
  return names
end

function sessions.set_inbox(c, node, inbox)
  if state.get(c, 'i' .. node) ~= inbox then
    state.put(c, 'i' .. node, inbox)
  end
end

-- Returns how many sessions there are.
function sessions.count(c)
  return select(2, string.gsub(state.get(c, 'S') or '', '\n', '\n'))
end

-- Opens a session, or renews it.
function sessions.open(c, node, inbox)
  local session = sessions.find(c, node)
  if not session then
    session = {0, 0, 0, 0, 0, 0, 0}
    state.put(c, 'S', (state.get(c, 'S') or '') .. node .. '\n')
  end
  sessions.set_inbox(c, node, inbox)
  session[EXPIRY] = c.now + c.plan.lease
  c.v[head.EXPIRY] = math.min(c.v[head.EXPIRY], session[EXPIRY])
  sessions.write(c, node, session)
  return session
end

-- Returns the ticket in a slot, or nil.
function sessions.ticket(c, node, slot)
  local field = ticket_field(node, slot)
  return c.tables[field] or
    (state.get(c, field) and state.numbers(c, field, TICKET_WORDS + c.plan.n)) or nil
end

-- Reads the tickets from one slot to before another, all at once.
function sessions.fetch_tickets(c, node, from, to)
  local names = {}
  for slot = from, to - 1 do
    local field = ticket_field(node, slot)
    names[#names + 1] = c.fields[field] == nil and field or nil
  end
  local values = #names > 0 and redis.call('HMGET', c.key, unpack(names)) or {}
  for i, field in ipairs(names) do
    c.fields[field] = values[i]
  end
end

function sessions.amounts(c, ticket)
  local amounts = {}
  for i = 1, c.plan.n do
    amounts[i] = ticket[TICKET_WORDS + i]
  end
  return amounts
end

-- Counts a ticket of this kind in (1) or out (-1).
local function sessions_count(session, kind, serial, sign)
  local n = kind == IS_HELD and HELD or WAITS
  session[n] = session[n] + sign
  session[n + 1] = (session[n + 1] + sign * serial) % SUM_MODULUS
end

-- Makes a ticket, or turns a waiter into a holder.
function sessions.put_ticket(c, node, slot, ticket)
  local session, before = sessions.find(c, node), sessions.ticket(c, node, slot)
  if before then
    sessions_count(session, before[KIND], before[SERIAL], -1)
  end
  sessions_count(session, ticket[KIND], ticket[SERIAL], 1)
  if session[SLOTS] <= slot then
    session[SLOTS] = slot + 1
  end
  if session[HIGH] < ticket[SERIAL] then
    session[HIGH] = ticket[SERIAL]
  end
  state.put_numbers(c, ticket_field(node, slot), ticket)
  sessions.write(c, node, session)
end

function sessions.drop_ticket(c, node, slot)
  local session, ticket = sessions.find(c, node), sessions.ticket(c, node, slot)
  sessions_count(session, ticket[KIND], ticket[SERIAL], -1)
  state.drop(c, ticket_field(node, slot))
  sessions.write(c, node, session)
end

-- Tells a node something, in its inbox, once the call has ended.
function sessions.push(c, node, text)
  local inbox = state.get(c, 'i' .. node)
  if inbox and inbox ~= '' then
    c.pushes = c.pushes or {}
    c.pushes[#c.pushes + 1] = {inbox = inbox, text = text}
  end
end

-- Returns the next fencing token: it grows also where another server goes on without knowing the
-- last ones, as far as the clocks agree.
function sessions.next_fence(c)
  local fence, clock = c.v[head.FENCE] + 1, c.clock
  fence = fence > clock and fence or clock
  c.v[head.FENCE] = fence
  return fence
end

-- Ends a ticket that its node does not end itself: what it holds is given back as fully used, and
-- counts as `counter`; or it leaves the wait queue. It stays in its slot.
function sessions.end_ticket(c, ticket, counter)
  local amounts = sessions.amounts(c, ticket)
  if ticket[KIND] == IS_HELD then
    limits.give_back(c, amounts, amounts, ticket[AT])
    c.v[counter] = c.v[counter] + 1
  else
    queue.remove(c, ticket[FENCE], amounts)
    c.v[head.CANCELED] = c.v[head.CANCELED] + 1
  end
end

-- Ends a session with all that it holds and waits for.
function sessions.close(c, node, session)
  for slot = 0, session[SLOTS] - 1 do
    if slot % FETCHED == 0 then
      sessions.fetch_tickets(c, node, slot, math.min(slot + FETCHED, session[SLOTS]))
    end
    local ticket = sessions.ticket(c, node, slot)
    if ticket then
      sessions.end_ticket(c, ticket, head.REAPED)
      state.drop(c, ticket_field(node, slot))
    end
  end
  local inbox = state.get(c, 'i' .. node)
  state.drop(c, session_field(node))
  state.drop(c, 'i' .. node)
  local names = {}
  for _, name in ipairs(sessions_names(c)) do
    names[#names + 1] = name ~= node and name .. '\n' or nil
  end
  state.put(c, 'S', table.concat(names))
  return inbox
end

-- Ends the sessions that have not been renewed in time. On another server all live until its grace
-- ends: they could not be renewed before, and its clock may be ahead.
function sessions.reap(c)
  if c.now < c.v[head.EXPIRY] and not c.is_moved then
    return
  end
  local earliest = NEVER
  for _, name in ipairs(sessions_names(c)) do
    local session = sessions.find(c, name)
    if session and c.is_moved then
      session[EXPIRY] = c.now + c.plan.lease
      sessions.write(c, name, session)
    end
    if session and session[EXPIRY] <= c.now then
      sessions.close(c, name, session)
    elseif session then
      earliest = math.min(earliest, session[EXPIRY])
    end
  end
  c.v[head.EXPIRY], c.changed = earliest, true
end
