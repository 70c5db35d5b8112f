-- Algorithms that are buckets. As plugins/algorithms/{gcra,token_bucket,leaky_bucket}.c decide,
-- with the microsecond in place of the nanosecond.
--
-- An algorithm is a table of functions over a limit `p` and the context `c` of a call: c.v has the
-- numbers of the set's state, those of the limit from p.at on; c.now is the instant, us.
--   configure(p)                 checks the definition, and prepares; returns nil or what is wrong
--   init(c, p)                   the state of a new limit
--   wait(c, p, n, ahead)         us until n more than `ahead` are granted: 0 is now. A lower bound
--                                if `ahead` is not 0
--   take(c, p, n)                takes n, which were granted, or are asserted to be
--   refund(c, p, n, granted)     gives back n of what was granted then; nil: cannot
--   strict(c, p, n, granted)     the same, less what has flowed in since
--   charge(c, p, n)              debt; nil: cannot
--   available(c, p)              the largest amount that would be granted now
--   drain(c, p)                  as if everything was taken just now
--   batch_us(c, p)               how long units taken as a batch may be used
--   reconfigure(c, p, q)         makes of the state of p that of q, of the same kind, as the plugins'
--                                functions of this name do; nil: it stays as it is
-- and `words`, the numbers of its state.
local muldiv, carry, positive = exact.muldiv, exact.carry, exact.positive

local function batch_of_delta(_, p)
  return p.delta
end

local function at_most(us, ticks, most_us, most_ticks)
  if us > most_us or (us == most_us and ticks > most_ticks) then
    return most_us, most_ticks
  end
  return us, ticks
end

-- Returns a time of limit p as one of q that brings as many units, at most what fills q. What is
-- less than a tick is dropped, or counts as one.
local function rescale(us, ticks, p, q, up)
  local n, rest = muldiv(us, p.u, p.s)
  rest = rest + ticks
  n, rest = n + exact.div(rest, p.s), math.fmod(rest, p.s)
  if n >= q.burst then
    return q.full_us, q.full_ticks
  end
  local more = (up and exact.muldiv_up or muldiv)(rest, q.s, p.s)
  us, ticks = muldiv(n, q.s, q.u)
  us, ticks = carry(us + exact.div(more, q.u), ticks + math.fmod(more, q.u), q.u)
  return at_most(us, ticks, q.full_us, q.full_ticks)
end

-- The bucket: token_bucket without steps, gcra, and leaky_bucket as a meter decide alike. The state
-- is the instant at which the bucket is full (a token bucket) or empty (a meter), as a pair;
-- `ahead` is what remains until then.
local bucket = {words = 2, batch_us = batch_of_delta}

local function read_rate(p)
  local g = exact.gcd(p.capacity, p.window)
  p.u, p.s = p.capacity / g, p.window / g
end

function bucket.configure(p)
  read_rate(p)
  p.full_us, p.full_ticks = muldiv(p.burst, p.s, p.u)
  if p.full_us >= WINDOW_MAX then
    return 'the burst takes more than 71 years to fill'
  end
  p.full_us = p.full_us - p.delta
  if p.full_us < 0 then
    return 'the burst is used up within the life of a batch'
  end
  p.max = exact.units(p.full_us, p.full_ticks, p.u, p.s)
  p.recovery = p.initial == p.burst and 2 * (p.full_us + 1) or nil
  return p.max < 1 and 'the burst is used up within the life of a batch' or nil
end

local function bucket_ahead(c, p)
  local us = c.v[p.at] - c.now
  if us < 0 then
    return 0, 0
  end
  return us, c.v[p.at + 1]
end

local function bucket_store(c, p, us, ticks)
  c.v[p.at], c.v[p.at + 1] = c.now + us, ticks
end

local function bucket_grown(c, p, n)
  local us, ticks = bucket_ahead(c, p)
  local more_us, more_ticks = muldiv(n, p.s, p.u)
  return carry(us + more_us, ticks + more_ticks, p.u)
end

function bucket.init(c, p)
  local us, ticks = muldiv(p.initial, p.s, p.u)
  bucket_store(c, p, positive(carry(p.full_us - us, p.full_ticks - ticks, p.u)))
end

function bucket.wait(c, p, n, ahead)
  local us, ticks = bucket_grown(c, p, n + ahead)
  return exact.ceil(carry(us - p.full_us, ticks - p.full_ticks, p.u))
end

function bucket.charge(c, p, n)
  local us, ticks = bucket_grown(c, p, n)
  bucket_store(c, p, at_most(us, ticks, carry(2 * p.full_us, 2 * p.full_ticks, p.u)))
end

bucket.take = bucket.charge

local function bucket_give_back(c, p, back_us, back_ticks)
  local us, ticks = bucket_ahead(c, p)
  bucket_store(c, p, positive(carry(us - back_us, ticks - back_ticks, p.u)))
end

function bucket.refund(c, p, n)
  bucket_give_back(c, p, muldiv(n, p.s, p.u))
end

function bucket.strict(c, p, n, granted)
  local us, ticks = muldiv(n, p.s, p.u)
  bucket_give_back(c, p, positive(us - math.max(0, c.now - granted), ticks))
end

function bucket.available(c, p)
  local us, ticks = bucket_ahead(c, p)
  us, ticks = positive(carry(p.full_us - us, p.full_ticks - ticks, p.u))
  return exact.units(us, ticks, p.u, p.s)
end

function bucket.drain(c, p)
  local us, ticks = bucket_ahead(c, p)
  if us < p.full_us or (us == p.full_us and ticks < p.full_ticks) then
    bucket_store(c, p, p.full_us, p.full_ticks)
  end
end

-- What is in a leaky bucket stays there as far as it fits; a shaper spaces it anew.
local function leaky_reconfigure(c, p, q)
  local us, ticks = bucket_ahead(c, p)
  bucket_store(c, q, rescale(us, ticks, p, q, true))
end

-- What is available stays so, as far as it fits; or the debt stays, up to the burst.
function bucket.reconfigure(c, p, q)
  if p.letter == 'l' then
    return leaky_reconfigure(c, p, q)
  end
  local us, ticks = bucket_ahead(c, p)
  us, ticks = carry(us - p.full_us, ticks - p.full_ticks, p.u)
  if us > 0 or (us == 0 and ticks > 0) then
    us, ticks = rescale(us, ticks, p, q, true)
    us, ticks = carry(q.full_us + us, q.full_ticks + ticks, q.u)
  else
    us, ticks = carry(-us, -ticks, p.u)
    us, ticks = rescale(us, ticks, p, q)
    us, ticks = carry(q.full_us - us, q.full_ticks - ticks, q.u)
  end
  bucket_store(c, q, us, ticks)
end

-- The shaper: leaky_bucket, with units that leave one by one, exactly W/C apart. The state is the
-- instant at which the next unit may leave, as a pair, and that of the last grant. An instant
-- between two us is observed at the later one, and a grant at that time counts from the exact
-- instant: so the rate is met in the long run.
local shaper = {words = 3}

function shaper.configure(p)
  read_rate(p)
  p.full_us, p.full_ticks = muldiv(p.capacity, p.s, p.u)
  p.max, p.recovery = p.capacity, p.full_us + 1
  if p.delta ~= 0 then
    return 'a shaper has no batches: its units leave one by one'
  end
end

function shaper.init(c, p)
  bucket_store(c, p, 0, 0)
  c.v[p.at + 2] = c.now
end

function shaper.wait(c, p, _, ahead)
  local us, ticks = bucket_ahead(c, p)
  if ahead > 0 then
    us, ticks = bucket_grown(c, p, ahead)
  end
  return exact.ceil(us, ticks)
end

function shaper.take(c, p, n)
  local us, ticks = c.v[p.at] - c.now, c.v[p.at + 1]
  if us < -1 or (us == -1 and ticks == 0) then
    us, ticks = 0, 0
  end
  local more_us, more_ticks = muldiv(n, p.s, p.u)
  bucket_store(c, p, carry(us + more_us, ticks + more_ticks, p.u))
  c.v[p.at + 2] = c.now
end

-- Cancels the units of the last grant that have not left yet, and later grants move up. The units
-- of earlier grants have left, or their times are taken.
function shaper.refund(c, p, n, granted)
  local us, ticks = bucket_ahead(c, p)
  if granted ~= c.v[p.at + 2] or (us == 0 and ticks == 0) then
    return
  end
  us, ticks = carry(us, ticks - 1, p.u) -- a unit that leaves now has left
  bucket_give_back(c, p, muldiv(math.min(n, exact.units(us, ticks, p.u, p.s)), p.s, p.u))
end

shaper.strict, shaper.reconfigure = shaper.refund, leaky_reconfigure

function shaper.available(c, p)
  local us, ticks = bucket_ahead(c, p)
  return us == 0 and ticks == 0 and p.capacity or 0
end

function shaper.drain(c, p)
  if shaper.available(c, p) > 0 then
    shaper.take(c, p, 1)
  end
end

-- The bucket in steps: token_bucket with `every`. All amounts are whole units. The state is what is
-- missing, the instant as of which it is, and the creation, from which steps are counted.
local steps = {words = 3, batch_us = batch_of_delta}

function steps.configure(p)
  local step, rest = muldiv(p.every, p.capacity, p.window)
  if rest ~= 0 then
    return 'a step must bring a whole number of units'
  end
  p.step = math.min(step, 2 * p.burst)
  p.max = p.burst
  if p.delta > 0 then -- until the last us of a batch, so many steps may come
    p.max = p.burst - p.step * exact.div(p.delta + p.every - 2, p.every)
  end
  return p.max < 1 and 'the burst is used up within the life of a batch' or nil
end

local function steps_at(c, p, instant)
  return exact.div(math.max(0, instant - c.v[p.at + 2]), p.every)
end

local function steps_between(c, p, from, to)
  return p.step * (steps_at(c, p, to) - steps_at(c, p, from))
end

local function steps_missing(c, p)
  return math.max(0, c.v[p.at] - steps_between(c, p, c.v[p.at + 1], c.now))
end

local function steps_store(c, p, missing)
  c.v[p.at], c.v[p.at + 1] = missing, c.now
end

function steps.init(c, p)
  c.v[p.at + 2] = c.now
  steps_store(c, p, math.max(0, p.max - p.initial))
end

function steps.wait(c, p, n, ahead)
  local lack = steps_missing(c, p) + n + ahead - p.max
  if lack <= 0 then
    return 0
  end
  local step = steps_at(c, p, c.now) + exact.div(lack + p.step - 1, p.step)
  return math.min(step * p.every - (c.now - c.v[p.at + 2]), NEVER - 1)
end

function steps.charge(c, p, n)
  steps_store(c, p, math.min(steps_missing(c, p) + n, 2 * p.max))
end

steps.take = steps.charge

local function steps_give_back(c, p, back)
  steps_store(c, p, math.max(0, steps_missing(c, p) - back))
end

function steps.refund(c, p, n)
  steps_give_back(c, p, n)
end

function steps.strict(c, p, n, granted)
  local since = math.max(granted, c.v[p.at + 2])
  local come = since < c.now and steps_between(c, p, since, c.now) or 0
  steps_give_back(c, p, math.max(0, n - come))
end

function steps.available(c, p)
  return math.max(0, p.max - steps_missing(c, p))
end

function steps.drain(c, p)
  steps_store(c, p, math.max(steps_missing(c, p), p.max))
end

function steps.reconfigure(c, p, q)
  local missing = steps_missing(c, p)
  if missing > p.max then
    steps_store(c, q, q.max + math.min(missing - p.max, q.max))
  else
    steps_store(c, q, math.max(0, q.max - (p.max - missing)))
  end
end
