-- The limits of a set together: all or nothing.
local limits = {}

-- Runs `f` at the instant of the last reservation, if that is still to come: what is decided before
-- is decided as of then.
local function limits_at_floor(c, f, a, b, d, e)
  local now = c.now
  if c.v[head.FLOOR] <= now then
    return f(c, a, b, d, e)
  end
  c.now = math.max(now, c.v[head.FLOOR])
  local first, second = f(c, a, b, d, e)
  c.now = now
  return first, second
end

-- Reads the amounts of a request, one argument for each limit.
function limits.read(c, from)
  local amounts = {}
  for i = 1, c.plan.n do
    local n = exact.number(c.args[from + i - 1])
    if not n or n < 0 or n >= EXACT or n % 1 ~= 0 then
      state.fail('BADARG amount of limit ' .. i - 1)
    end
    amounts[i] = n
  end
  return amounts
end

-- Returns the limit that can never grant its amount, or nil.
function limits.impossible(c, amounts)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    if amounts[i] > p.max then
      return i
    end
  end
end

function limits.are_zero(amounts)
  for i = 1, #amounts do
    local n = amounts[i]
    if n > 0 then
      return false
    end
  end
  return true
end

-- Returns whether nodes have to decide some of these amounts.
function limits.are_foreign(c, amounts)
  if not c.plan.has_foreign then
    return false
  end
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    if p.kind.is_foreign and amounts[i] > 0 then
      return true
    end
  end
  return false
end

local function limits_wait(c, amounts, behind)
  local latest, limiting = 0, 0
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    local n = amounts[i]
    if n > 0 and not (behind and p.kind.holds) then
      local us = p.kind.wait(c, p, n, behind and math.min(c.v[p.waiting], EXACT / 2 - n) or 0)
      if us > latest then
        latest, limiting = us, i
      end
    end
  end
  return latest < NEVER and latest or NEVER, limiting
end

-- Returns us until the limits grant these amounts, and the limit that determines it (0: none), as
-- if no request waited; 0 is now, NEVER is not by time.
function limits.wait(c, amounts)
  local us, limiting = limits_at_floor(c, limits_wait, amounts, false)
  local floor = c.v[head.FLOOR]
  return floor <= c.now and us or math.min(us + floor - c.now, NEVER), limiting
end

-- Returns the same behind all that wait: a lower bound, in which resources count as available.
function limits.forecast(c, amounts)
  local us, limiting = limits_at_floor(c, limits_wait, amounts, true)
  return math.min(us + math.max(0, c.v[head.FLOOR] - c.now), NEVER - 1), limiting
end

function limits.take(c, amounts)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    if amounts[i] > 0 then
      p.kind.take(c, p, amounts[i])
    end
  end
  c.changed = true
end

-- Takes what a node says that it was granted before data was lost. A limit that was drained then
-- has counted it already.
function limits.assert(c, amounts)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    if amounts[i] > 0 and not (c.plan.drains and p.kind.drain) then
      p.kind.take(c, p, amounts[i])
    end
  end
  c.changed = true
end

local function limits_give_back(c, amounts, used, granted, undo)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    local rest, refund = amounts[i] - used[i], p.refund or (undo and p.kind.refund)
    if p.kind.holds then
      if amounts[i] > 0 then
        p.kind.release(c, p, amounts[i])
      end
    elseif p.kind.is_foreign then
      if amounts[i] > 0 then
        p.kind.give_back(c, p, amounts[i])
      end
    elseif rest > 0 and refund then
      refund(c, p, rest, granted)
    elseif rest < 0 and p.charge then
      p.charge(c, p, -rest)
    end
  end
  c.changed = true
end

-- Ends a grant of which `used` was used: resources go back, unused units are refunded, excess is
-- charged. `undo`: it was never used.
function limits.give_back(c, amounts, used, granted, undo)
  limits_at_floor(c, limits_give_back, amounts, used, granted, undo)
end

-- Takes back the unused units of a batch: so many that what is used keeps the limit.
function limits.undo_batch(c, p, n, at)
  limits_at_floor(c, p.kind.strict, p, n, at)
  c.changed = true
end

-- Returns whether two limits of a kind decide alike.
local function limits_are_same(p, q)
  return p.capacity == q.capacity and p.window == q.window and p.burst == q.burst and
    p.initial == q.initial and p.extra == q.extra and p.delta == q.delta
end

local function limits_convert(c, plan)
  for i = 1, plan.n do
    local p, q = c.plan.limits[i], plan.limits[i]
    if p.kind.reconfigure and not limits_are_same(p, q) then
      p.kind.reconfigure(c, p, q)
    end
  end
end

-- Makes of the state of all limits that of another plan of the same shape.
function limits.convert(c, plan)
  limits_at_floor(c, limits_convert, plan)
end

-- Adds to what waits, or removes from it.
function limits.count_waiting(c, amounts, sign)
  for i = 1, c.plan.n do
    local p = c.plan.limits[i]
    local sum = math.max(0, c.v[p.waiting] + sign * amounts[i])
    c.v[p.waiting] = c.v[head.WAITING] > 0 and math.min(sum, EXACT / 2) or 0
  end
  c.changed = true
end

-- Returns for each limit: the largest amount that would be granted now, what waits, and us until an
-- amount of 1, one more than that largest one, and all that ever can be, would be granted.
function limits.describe(c)
  local ahead = math.max(0, c.v[head.FLOOR] - c.now)
  return limits_at_floor(c, function()
    local reply = {}
    for i = 1, c.plan.n do
      local p = c.plan.limits[i]
      local function us_until(n)
        local us = p.kind.is_foreign and NEVER or p.kind.wait(c, p, n, 0) + ahead
        return us < NEVER and us or -1
      end
      local available = p.kind.available(c, p)
      local at_once = ahead == 0 and available or 0
      local more = at_once < p.max and us_until(at_once + 1) or 0
      reply[i] = {available, c.v[p.waiting], us_until(1), more, at_once < p.max and us_until(p.max) or 0}
    end
    return reply
  end)
end
