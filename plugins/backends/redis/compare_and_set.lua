-- Algorithms of other plugins: nodes decide them, and the server compares and sets. Their state, of
-- all such limits of a set together, is one text that means nothing here, and has a version. A node
-- fetches both, decides, and commits the text that follows, with the requests that it grants and
-- the tickets that it ends. What else is in the set is decided by the server in the same step.
local TEXT_MAX, OPERATIONS_MAX, CONFLICT = 2 ^ 20, 128, 1

-- Returns for each limit the units that the text counts too much as held, and those that it lacks.
local function commit_balances(c)
  local balances = {}
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    local is_foreign = p.kind.is_foreign
    balances[2 * i - 1], balances[2 * i] = is_foreign and c.v[p.at] or 0,
                                           is_foreign and c.v[p.at + 1] or 0
  end
  return balances
end

-- Stores what a node has made of them: all that was too much it has released.
local function commit_balance(c, from)
  local missing = limits.read(c, from)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    if p.kind.is_foreign and p.holds > 0 then
      c.v[p.at], c.v[p.at + 1] = 0, math.min(missing[i], AMOUNT_MAX)
    end
  end
end

-- weir_fetch RUN DEFINITION NODE
local function weir_fetch(keys, args)
  local c = transaction.begin(keys, args, LOOKS, 'X')
  if not c then
    return redis.error_reply('NOSET there is none')
  end
  return {c.v[head.VERSION], c.now, c.clock, math.max(0, c.v[head.GRACE] - c.now),
          c.v[head.WAITING], state.get(c, 'X') or '', commit_balances(c)}
end

-- Returns why the limits that the server decides do not grant these amounts, or nil: they do.
local function commit_refusal(c, amounts)
  local impossible, grace = limits.impossible(c, amounts), c.v[head.GRACE] - c.now
  if impossible then
    return range_reply(impossible)
  elseif grace > 0 then
    return refused_reply(IN_GRACE, 0, grace)
  end
  local us, limiting = limits.wait(c, amounts)
  return us > 0 and refused_reply(BUSY, limiting, us) or nil
end

-- Grants to the head of the wait queue. Other waiters have to wait until they are that.
local function commit_waiter(c, slot, ticket, amounts)
  local waiter, place = queue.head(c)
  if not waiter or place ~= ticket[FENCE] or waiter.node ~= c.node then
    return refused_reply(BUSY, 0, NEVER)
  end
  for i, n in ipairs(waiter.amounts) do
    if n ~= amounts[i] then
      state.fail('BADARG other amounts than those that wait')
    end
  end
  local refusal = commit_refusal(c, amounts)
  if not refusal then
    queue.remove(c, place, amounts)
    limits.take(c, amounts)
  end
  return refusal
end

-- Each operation returns a reply if it fails, or nil and its fence.
local operations = {}

function operations.grant(c, session, from)
  local slot, serial = read_slot(c, from)
  local amounts, ticket = limits.read(c, from + 2), sessions.ticket(c, c.node, slot)
  local refusal
  if ticket and ticket[SERIAL] == serial and ticket[KIND] == IS_WAITING then
    refusal = commit_waiter(c, slot, ticket, amounts)
  elseif ticket or serial <= session[HIGH] then
    refusal = {GONE}
  elseif not may_pass(c) then
    refusal = refused_reply(BUSY, 0, NEVER)
  else
    refusal = commit_refusal(c, amounts)
    if not refusal then
      limits.take(c, amounts)
    end
  end
  if refusal then
    return refusal
  end
  return nil, grant(c, slot, serial, amounts, c.now)[2]
end

function operations.take(c, _, from)
  local amounts = limits.read(c, from)
  check_final(c, amounts)
  local refusal = may_pass(c) and commit_refusal(c, amounts) or nil
  if refusal or not may_pass(c) then
    return refusal or refused_reply(BUSY, 0, NEVER)
  end
  limits.take(c, amounts)
  return nil, 0
end

operations['end'] = function(c, _, from, undo)
  local slot, serial = read_slot(c, from)
  if not end_ticket(c, slot, serial, from + 2, undo) then
    return {GONE}
  end
  return nil, 0
end

function operations.undo(c, session, from)
  return operations['end'](c, session, from, true)
end

-- It is done once: only a ticket that has as much as the node knows of.
operations['return'] = function(c, _, from)
  local slot, serial = read_slot(c, from)
  local before, ticket = limits.read(c, from + 2), sessions.ticket(c, c.node, slot)
  if not ticket or ticket[SERIAL] ~= serial or ticket[KIND] ~= IS_HELD then
    return {GONE}
  end
  for i, n in ipairs(sessions.amounts(c, ticket)) do
    if n ~= before[i] then
      return {GONE}
    end
  end
  return_part(c, slot, ticket, limits.read(c, from + 2 + c.plan.n))
  return nil, 0
end

-- Returns the number of the argument after an operation, or nil: there is none.
local function commit_following(c, from)
  local n, words = c.plan.n, {grant = 3, take = 1, ['end'] = 3, undo = 3, ['return'] = 3}
  local name = c.args[from]
  local following = words[name] and from + words[name] + (name == 'return' and 2 * n or n)
  return following and following <= #c.args + 1 and following or nil
end

-- Does the operations in order. Returns a reply, with the operation that fails, or nil and fences.
local function commit_operations(c, session, from)
  local fences = {}
  while from <= #c.args do
    local following = commit_following(c, from)
    if not following or #fences >= OPERATIONS_MAX then
      state.fail('BADARG operation')
    end
    local refusal, fence = operations[c.args[from]](c, session, from + 1)
    if refusal then
      refusal[#refusal + 1] = #fences
      return refusal
    end
    fences[#fences + 1], from = fence, following
  end
  return nil, fences
end

-- Returns whether the text of a commit follows from the one that is here, as of an instant that is
-- not to come, and not long ago: what is granted is used from now on. A node that was stopped after
-- it had decided would grant for then what has been replenished since, and that once more for now.
local function commit_is_due(c, version, at, within)
  return version == c.v[head.VERSION] and at <= c.now and c.now - at <= within
end

-- weir_commit RUN DEFINITION NODE INBOX VERSION AT WITHIN KEEP TEXT MISSING... OPERATION...
local function weir_commit(keys, args)
  local c, session = begin_with_inbox(keys, args)
  if not session then
    return refuse_session(c)
  end
  local version, at = read_whole(c, 5, 0, 'version'), read_whole(c, 6, 0, 'instant')
  local within = read_whole(c, 7, 0, 'time until it is too old')
  local keep, text = read_whole(c, 8, -1, 'keep'), args[9]
  if not text or #text > TEXT_MAX then
    state.fail('BADARG text')
  end
  queue.pump(c)
  if not commit_is_due(c, version, at, within) then
    return transaction.finish(c, {CONFLICT, c.v[head.VERSION], c.now, c.clock, own_timer(c),
                                  state.get(c, 'X') or '', commit_balances(c)})
  end
  c.accounts = true
  local refusal, fences = commit_operations(c, session, 10 + c.plan.n)
  if refusal then
    return refusal -- nothing is written
  end
  commit_balance(c, 10)
  c.v[head.VERSION] = version + 1
  state.put(c, 'X', text)
  state.put(c, 'K', string.format('%d', keep < 0 and EXACT or math.min(at + keep, EXACT)))
  queue.pump(c)
  return transaction.finish(c, {GRANTED, version + 1, c.now, c.clock, own_timer(c), fences})
end
