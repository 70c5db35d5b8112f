-- The definition of a set, a text that every call carries:
--
--   FINGERPRINT/FLAGS/QUEUE_MAX/LEASE_US/LIMIT/LIMIT...
--   FINGERPRINT.REVISION.SHAPE/FLAGS/QUEUE_MAX/LEASE_US/LIMIT/LIMIT...
--
-- REVISION: from 1; 0 in the first form. SHAPE: what all revisions have in common, besides what this
-- file compares: names of limits, and all about limits that nodes decide. Not known of revision 0.
-- FLAGS: `b` newcomers may pass waiters, `d` drained after a loss of data, `-` none.
-- LIMIT: `r,CAPACITY` a resource; `x,MOST,HOLDS` a limit that nodes decide, at most MOST at a time,
-- HOLDS 1: a resource; or
-- KIND,CAPACITY,WINDOW,BURST,INITIAL,EXTRA,DELTA,REFUND,CHARGE:
--   KIND    `t` token_bucket, `g` gcra, `l` leaky_bucket, `s` sliding_window, `f` fixed_window
--   WINDOW  us; BURST is the capacity where there is none; INITIAL is available at the start
--   EXTRA   t: length of a step, us, or 0; l: 0 meter, 1 shaper; s: segments; f: 0 first_use,
--           1 creation, 2 epoch
--   DELTA   us for which units of a batch may be used, or 0: no batches
--   REFUND  0 none, 1 plain, 2 strict; CHARGE 1: use beyond the grant is debt
-- All numbers are decimal. Two calls have the same definition if the texts are equal.
local definition = {}

do -- all else is of this file alone: the library can have 200 local names at once
local DEFINITION_MAX, LIMITS_MAX, PLANS_MAX = 4096, 64, 2048
local LEASE_MIN, LEASE_MAX, QUEUE_MAX, REVISION_MAX = 10000, 86400000000, 2 ^ 20, 2 ^ 31 - 1

local plans, plans_n = {}, 0 -- definitions that were read, by their text

local function limit_kind(letter, extra)
  if letter == 't' then
    return extra > 0 and steps or bucket
  elseif letter == 'l' then
    return extra > 0 and shaper or bucket
  end
  return ({g = bucket, s = log, f = window})[letter]
end

-- Returns the numbers of a text `1,2,3`, or nil.
local function read_numbers(text)
  local numbers = {}
  for word in string.gmatch(text .. ',', '([^,]*),') do
    if not string.find(word, '^%d+$') or #word > 16 then
      return nil
    end
    numbers[#numbers + 1] = tonumber(word)
  end
  return numbers
end

local function check_rate(p, letter)
  if p.window < 1 or p.window > WINDOW_MAX then
    return 'a window is from 1 us to 71 years'
  elseif p.burst < 1 or p.burst > AMOUNT_MAX or p.initial > p.burst then
    return 'a burst is from 1 to 2^49 units, and not less than what is there at the start'
  elseif p.extra > WINDOW_MAX or p.delta > WINDOW_MAX or p.mode > 2 or p.charges > 1 then
    return 'a number is too large'
  elseif letter == 'l' and (p.extra > 1 or p.charges > 0) then
    return 'a leaky bucket is a meter or a shaper, and has no debt'
  elseif letter ~= 't' and letter ~= 'g' and p.burst ~= p.capacity then
    return 'there is no burst but the capacity'
  end
end

local function read_rate_limit(letter, numbers)
  if #numbers ~= 8 or letter == 'r' or letter == 'x' then
    return nil, 'a limit has a letter and eight numbers'
  end
  local p = {capacity = numbers[1], window = numbers[2], burst = numbers[3], initial = numbers[4],
             extra = numbers[5], every = numbers[5], delta = numbers[6], mode = numbers[7],
             charges = numbers[8]}
  local wrong = check_rate(p, letter)
  if wrong then
    return nil, wrong
  end
  p.kind = limit_kind(letter, p.extra)
  p.refund = ({p.kind.refund, p.kind.strict})[p.mode]
  p.charge = p.charges == 1 and p.kind.charge or nil
  return p
end

local function read_limit(text)
  local letter, rest = string.match(text, '^([tglsfrx]),([%d,]+)$')
  local numbers = letter and read_numbers(rest)
  if not numbers then
    return nil, 'not a limit'
  elseif numbers[1] < 1 or numbers[1] > AMOUNT_MAX then
    return nil, 'a capacity is from 1 to 2^49 units'
  elseif letter == 'r' and #numbers == 1 then
    return {kind = resource, capacity = numbers[1], delta = 0}
  elseif letter == 'x' and #numbers == 2 then
    return {kind = foreign, capacity = numbers[1], holds = numbers[2], delta = 0}
  end
  return read_rate_limit(letter, numbers)
end

-- Adds a limit to the plan. Its words in the state: the units that wait for it, then its own.
local function plan_add(plan, text)
  local p, wrong = read_limit(text)
  if not p then
    return wrong
  end
  plan.n = plan.n + 1
  p.letter = string.sub(text, 1, 1)
  p.index, p.waiting, p.at = plan.n, plan.words + 1, plan.words + 2
  plan.words = plan.words + 1 + p.kind.words
  plan.has_foreign = plan.has_foreign or p.kind.is_foreign
  plan.limits[plan.n] = p
  wrong = p.kind.configure(p)
  if p.recovery and plan.recovery then
    plan.recovery = math.max(plan.recovery, p.recovery)
  else
    plan.recovery = nil -- some limit is never as new
  end
  return wrong
end

-- Returns the revision of an identity, and its shape, or nil if it is none.
local function read_identity(text)
  if string.find(text, '^%w+$') then
    return 0
  end
  local revision, shape = string.match(text, '^%w+%.([1-9]%d*)%.(%w+)$')
  revision = tonumber(revision)
  return revision and revision <= REVISION_MAX and revision or nil, shape
end

local function read_plan(text)
  local identity, flags, queue_max, lease, limits =
    string.match(text, '^([%w.]+)/([bd-]+)/(%d+)/(%d+)/(.*)$')
  local plan = {limits = {}, n = 0, words = head.WORDS, recovery = 0, text = text}
  plan.queue_max, plan.lease = tonumber(queue_max), tonumber(lease)
  plan.revision, plan.shape = read_identity(identity or '')
  if not plan.revision or #text > DEFINITION_MAX or plan.queue_max > QUEUE_MAX or
      plan.lease < LEASE_MIN or plan.lease > LEASE_MAX then
    return nil, 'not FINGERPRINT[.REVISION.SHAPE]/FLAGS/QUEUE_MAX/LEASE_US/LIMIT...'
  end
  plan.barges = string.find(flags, 'b') ~= nil
  plan.drains = string.find(flags, 'd') ~= nil
  for limit in string.gmatch(limits .. '/', '([^/]*)/') do
    local wrong = plan.n < LIMITS_MAX and plan_add(plan, limit) or
      (plan.n >= LIMITS_MAX and 'more than 64 limits') or nil
    if wrong then
      return nil, string.format('limit %d: %s', plan.n, wrong)
    end
  end
  if plan.recovery then
    plan.keep = math.max(plan.recovery, plan.lease)
  end
  return plan
end

-- Returns the plan of a definition, or nil and what is wrong.
local function find_plan(text)
  local plan, wrong = plans[text], nil
  if plan then
    return plan
  end
  plan, wrong = read_plan(text)
  if not plan then
    return nil, wrong
  end
  if plans_n >= PLANS_MAX then
    plans, plans_n = {}, 0
  end
  plans[text], plans_n = plan, plans_n + 1
  return plan
end

-- Returns whether the state of a set of one plan can become one of the other: each limit has the
-- same kind in both. A node with the other plan counts its lease as well, so that stays. What nodes
-- decide has a state that means nothing here, so nothing of that may differ.
local function have_one_shape(a, b)
  if a.n ~= b.n or a.lease ~= b.lease or (a.shape and b.shape and a.shape ~= b.shape) then
    return false
  end
  for i = 1, a.n do
    local p, q = a.limits[i], b.limits[i]
    if p.letter ~= q.letter or p.kind ~= q.kind then
      return false
    elseif p.kind.is_foreign and (p.capacity ~= q.capacity or p.holds ~= q.holds) then
      return false
    end
  end
  return not a.has_foreign or (a.shape and b.shape)
end

-- Returns the plan that decides a call with this definition, where another one, or none, is stored;
-- and the plan that is to take its place, or nil.
function definition.plan(text, stored)
  local plan, wrong = find_plan(text)
  if not plan then
    state.fail('BADDEF ' .. wrong)
  elseif not stored or stored == text then
    return plan
  end
  local kept = find_plan(stored)
  if not kept or kept.revision == plan.revision or not have_one_shape(kept, plan) then
    state.fail('MISMATCH ' .. stored)
  end
  return kept, plan.revision > kept.revision and plan or nil
end
end
