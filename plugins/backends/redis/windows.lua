-- Algorithms that are windows, and the resource. As plugins/algorithms/{fixed_window,
-- sliding_window}.c decide, with the microsecond in place of the nanosecond.

-- The fixed window. Numbers of its state, from p.at on.
local CREATED, START, NUMBER, COUNT, SEEN = 0, 1, 2, 3, 4
local FIRST_USE, CREATION, EPOCH = 0, 1, 2

local window = {words = 5}

function window.configure(p)
  p.anchor, p.max = p.extra, p.capacity
  p.recovery = p.anchor ~= CREATION and p.initial == p.capacity and 2 * p.window or nil
  return p.anchor > EPOCH and 'no such anchor' or nil
end

-- Returns the number of the calendar window. All time before 1970 belongs to window 0.
local function window_number(c, p)
  return exact.div(math.max(0, c.now + c.wall_offset), p.window)
end

function window.init(c, p)
  local v, at = c.v, p.at
  v[at + CREATED], v[at + START], v[at + SEEN] = c.now, c.now, c.now
  v[at + COUNT] = p.capacity - p.initial
  if p.anchor == EPOCH then
    v[at + NUMBER] = window_number(c, p)
  else
    v[at + NUMBER] = p.anchor == FIRST_USE and v[at + COUNT] ~= 0 and 1 or 0
  end
end

-- Returns start, number and count of the window at c.now. A step of the wall clock may divide an
-- instant between two windows; grants at that instant count for the earlier one.
local function window_current(c, p)
  local v, at = c.v, p.at
  local start, number, count = v[at + START], v[at + NUMBER], v[at + COUNT]
  if p.anchor == EPOCH then
    local current = window_number(c, p)
    if current <= number then
      return start, number, count
    end
    local divided = v[at + SEEN] == c.now and (count ~= 0 or start > c.now)
    return divided and c.now + 1 or c.now, current, 0
  end
  if c.now - start < p.window then
    return start, number, count
  end
  if p.anchor == CREATION then
    start = c.now - math.fmod(c.now - v[at + CREATED], p.window)
  end
  return start, 0, 0
end

local function window_store(c, p, start, number, count)
  local v, at = c.v, p.at
  v[at + START], v[at + NUMBER], v[at + COUNT], v[at + SEEN] = start, number, count, c.now
end

-- Returns us until the window ends. One that is to begin with the first use would last from now on.
local function window_left(c, p, start, number)
  if p.anchor == EPOCH then
    return (number + 1) * p.window - c.wall_offset - c.now
  elseif p.anchor == FIRST_USE and number == 0 then
    return p.window
  end
  return p.window - (c.now - start)
end

function window.wait(c, p, n, ahead)
  local start, number, count = window_current(c, p)
  local beyond = n + ahead - math.max(0, p.capacity - count)
  if beyond <= 0 then
    return 0
  end
  local windows = exact.div(beyond - 1, p.capacity)
  return math.min(window_left(c, p, start, number) + windows * p.window, NEVER - 1)
end

function window.take(c, p, n)
  local start, number, count = window_current(c, p)
  if p.anchor == FIRST_USE and number == 0 then
    start, number = c.now, 1
  elseif p.anchor == EPOCH and count == 0 then
    start = math.max(start, c.now) -- an empty state is as a new one, also for a later definition
  end
  window_store(c, p, start, number, count + n)
end

-- Refunds only within the window of the grant. Earlier grants no longer count.
function window.refund(c, p, n, granted)
  local start, number, count = window_current(c, p)
  if granted >= start then
    count = math.max(0, count - n)
  end
  window_store(c, p, start, number, count)
end

window.strict = window.refund

function window.available(c, p)
  local _, _, count = window_current(c, p)
  return math.max(0, p.capacity - count)
end

function window.drain(c, p)
  local rest = window.available(c, p)
  if rest > 0 then
    window.take(c, p, rest)
  end
end

-- The count of the current window goes on in the current window of the new definition.
function window.reconfigure(c, p, q)
  local start, number, count = window_current(c, p)
  if q.anchor == EPOCH then
    number = window_number(c, q)
  elseif q.anchor == CREATION then
    start, number = c.now - math.fmod(c.now - c.v[p.at + CREATED], q.window), 0
  elseif p.anchor ~= FIRST_USE then
    start, number = math.min(start, c.now), count ~= 0 and 1 or 0
  end
  window_store(c, q, start, number, count)
end

-- Batches end with the window: units of one window are not used in the next.
function window.batch_us(c, p)
  local start, number = window_current(c, p)
  return math.min(p.delta, window_left(c, p, start, number))
end

-- The sliding window: a log of (instant, amount), at most one entry per instant, in pages of
-- LOG_PAGE entries that form a list. A page is a field of the set's hash; its numbers are the
-- previous page, the next page (0: none), then instants and amounts in turn. Pages that become
-- empty leave the list. Numbers of the state, from p.at on:
local SUM, OLDEST, FIRST, LAST, NEXT = 0, 1, 2, 3, 4
local LOG_PAGE, LOG_SLOTS_MAX = 32, 2 ^ 20
local NO_ENTRY = EXACT

local log = {words = 5, batch_us = batch_of_delta}

function log.configure(p)
  p.segments, p.max = p.extra, p.capacity
  if p.segments > LOG_SLOTS_MAX or p.segments > p.window then
    return 'too many segments'
  end
  local instants = p.segments ~= 0 and p.segments + 1 or p.window
  if math.min(p.capacity, instants) > LOG_SLOTS_MAX then
    return 'an exact log of so many units takes too much memory: set segments'
  end
  p.span = p.window + p.delta -- units may be used so long after their grant: they count longer
  if p.span > WINDOW_MAX then
    return 'the window and the life of a batch are more than 71 years'
  end
  p.slots = math.min(p.capacity, p.segments ~= 0 and p.segments + 1 or p.span)
  p.recovery = p.initial == p.capacity and 2 * p.span or nil
end

local function log_page(c, p, number)
  return state.numbers(c, string.format('l%d.%d', p.index, number))
end

local function log_write(c, p, number, page)
  state.put_numbers(c, string.format('l%d.%d', p.index, number), page)
end

-- Returns the instant at which a grant of now is entered: itself or, with segments, the end of its
-- sub-window ((k-1)·W/N, k·W/N].
local function log_entered(p, instant)
  if p.segments == 0 then
    return instant
  end
  local rest = math.fmod(instant, p.window)
  local k = exact.muldiv_up(rest, p.segments, p.window)
  return instant - rest + exact.muldiv_up(k, p.window, p.segments)
end

-- Returns the last instant of which grants are entered at this one.
local function log_last_of(p, entered)
  if p.segments == 0 then
    return entered
  end
  local rest = math.fmod(entered, p.window)
  local k = exact.muldiv(rest, p.segments, p.window)
  return entered - rest + exact.muldiv(k, p.window, p.segments)
end

local function log_unlink(c, p, number, page)
  local v, previous, following = c.v, page[1], page[2]
  if previous == 0 then
    v[p.at + FIRST] = following
  else
    local before = log_page(c, p, previous)
    before[2] = following
    log_write(c, p, previous, before)
  end
  if following == 0 then
    v[p.at + LAST] = previous
  else
    local after = log_page(c, p, following)
    after[1] = previous
    log_write(c, p, following, after)
  end
  state.drop(c, string.format('l%d.%d', p.index, number))
end

-- Removes the first `n` entries of a page, from index `from` on.
local function log_remove(c, p, number, page, from, n)
  for i = from, #page - 2 * n do
    page[i] = page[i + 2 * n]
  end
  for _ = 1, 2 * n do
    page[#page] = nil
  end
  if #page == 2 then
    log_unlink(c, p, number, page)
  else
    log_write(c, p, number, page)
  end
  local first = c.v[p.at + FIRST]
  c.v[p.at + OLDEST] = first == 0 and NO_ENTRY or log_page(c, p, first)[3]
end

-- Drops the entries that no longer count.
local function log_expire(c, p)
  local v, before = c.v, c.now - p.span
  while v[p.at + OLDEST] <= before do
    local number = v[p.at + FIRST]
    local page, n = log_page(c, p, number), 0
    while page[3 + 2 * n] and page[3 + 2 * n] <= before do
      v[p.at + SUM] = v[p.at + SUM] - page[4 + 2 * n]
      n = n + 1
    end
    log_remove(c, p, number, page, 3, n)
  end
end

local function log_new_page(c, p)
  local v, number, last = c.v, c.v[p.at + NEXT], c.v[p.at + LAST]
  v[p.at + NEXT], v[p.at + LAST] = number + 1, number
  if last == 0 then
    v[p.at + FIRST] = number
  else
    local page = log_page(c, p, last)
    page[2] = number
    log_write(c, p, last, page)
  end
  return {last, 0}, number
end

local function log_append(c, p, n)
  local v, instant = c.v, log_entered(p, c.now)
  local number, page = v[p.at + LAST], nil
  if number ~= 0 then
    page = log_page(c, p, number)
  end
  if page and page[#page - 1] >= instant then
    page[#page] = page[#page] + n
  else
    if not page or #page >= 2 + 2 * LOG_PAGE then
      page, number = log_new_page(c, p)
    end
    page[#page + 1], page[#page + 2] = instant, n
    v[p.at + OLDEST] = math.min(v[p.at + OLDEST], instant)
  end
  log_write(c, p, number, page)
  v[p.at + SUM] = v[p.at + SUM] + n
end

function log.init(c, p)
  local v, at = c.v, p.at
  v[at + SUM], v[at + OLDEST], v[at + FIRST], v[at + LAST], v[at + NEXT] = 0, NO_ENTRY, 0, 0, 1
  if p.initial < p.capacity then
    log_append(c, p, p.capacity - p.initial)
  end
end

-- Returns us until the oldest entries, which hold `units` or more, have expired.
local function log_freed(c, p, units)
  local number = c.v[p.at + FIRST]
  while true do
    local page = log_page(c, p, number)
    for i = 3, #page, 2 do
      units = units - page[i + 1]
      if units <= 0 then
        return page[i] + p.span - c.now
      end
    end
    number = page[2]
  end
end

function log.wait(c, p, n, ahead)
  log_expire(c, p)
  local used, total = c.v[p.at + SUM], n + ahead
  if used + total <= p.capacity then
    return 0
  elseif total <= p.capacity then
    return log_freed(c, p, used + total - p.capacity)
  end
  -- No window has more than the capacity: what is beyond k times that comes after k windows.
  return math.min(exact.div(total - 1, p.capacity) * p.window, NEVER - 1)
end

function log.take(c, p, n)
  log_expire(c, p)
  log_append(c, p, n)
end

-- Shrinks the entry of the grant.
function log.refund(c, p, n, granted)
  log_expire(c, p)
  local v, instant, number = c.v, log_entered(p, granted), c.v[p.at + LAST]
  local page = number ~= 0 and log_page(c, p, number)
  while page and page[3] > instant do
    number = page[1]
    page = number ~= 0 and log_page(c, p, number)
  end
  local i = 3
  while page and i < #page and page[i] < instant do
    i = i + 2
  end
  if not page or page[i] ~= instant then
    return
  end
  local back = math.min(n, page[i + 1])
  v[p.at + SUM], page[i + 1] = v[p.at + SUM] - back, page[i + 1] - back
  if page[i + 1] == 0 then
    log_remove(c, p, number, page, i, 1)
  else
    log_write(c, p, number, page)
  end
end

log.strict = log.refund

function log.available(c, p)
  log_expire(c, p)
  return math.max(0, p.capacity - c.v[p.at + SUM])
end

function log.drain(c, p)
  local rest = log.available(c, p)
  if rest > 0 then
    log_append(c, p, rest)
  end
end

-- Takes all entries out of the log. Returns their instants, and their units.
local function log_empty(c, p)
  local v, instants, units, number = c.v, {}, {}, c.v[p.at + FIRST]
  while number ~= 0 do
    local page = log_page(c, p, number)
    for i = 3, #page, 2 do
      instants[#instants + 1], units[#units + 1] = page[i], page[i + 1]
    end
    state.drop(c, string.format('l%d.%d', p.index, number))
    number = page[2]
  end
  v[p.at + OLDEST], v[p.at + FIRST], v[p.at + LAST] = NO_ENTRY, 0, 0
  return instants, units
end

-- Fills a log without entries with those from number `from` to `to`.
local function log_fill(c, p, instants, units, from, to)
  local v, number = c.v, c.v[p.at + NEXT]
  v[p.at + OLDEST], v[p.at + FIRST] = instants[from], number
  for first = from, to, LOG_PAGE do
    local page = {first > from and number - 1 or 0, first + LOG_PAGE <= to and number + 1 or 0}
    for i = first, math.min(first + LOG_PAGE - 1, to) do
      page[#page + 1], page[#page + 2] = instants[i], units[i]
    end
    log_write(c, p, number, page)
    number = number + 1
  end
  v[p.at + LAST], v[p.at + NEXT] = number - 1, number
end

-- Enters what counts anew: of a sub-window at its last instant. What is more than the entries that
-- the new log can have counts as long as the last of these, as in the plugin's ring.
function log.reconfigure(c, p, q)
  log_expire(c, p)
  local is_same = p.segments == q.segments and (p.segments == 0 or p.window == q.window)
  if c.v[p.at + SUM] == 0 or (is_same and c.v[p.at + SUM] <= q.slots) then
    return -- each entry has a unit, so there are not too many
  end
  local instants, units = log_empty(c, p)
  local n, from = 0, 1
  for i = 1, #instants do
    local instant = log_entered(q, math.min(log_last_of(p, instants[i]), c.now))
    if n > 0 and instants[n] >= instant then
      units[n] = units[n] + units[i]
    else
      n = n + 1
      instants[n], units[n] = instant, units[i]
    end
  end
  while n - from >= q.slots do
    units[from + 1] = units[from + 1] + units[from]
    from = from + 1
  end
  log_fill(c, q, instants, units, from, n)
end

-- The resource: what is held. Time does not replenish it.
local resource = {words = 1, holds = true}

function resource.configure(p)
  p.max, p.recovery = p.capacity, 0
end

function resource.init(c, p)
  c.v[p.at] = 0
end

function resource.wait(c, p, n)
  return c.v[p.at] + n <= p.capacity and 0 or NEVER
end

function resource.take(c, p, n)
  c.v[p.at] = c.v[p.at] + n
end

function resource.release(c, p, n)
  c.v[p.at] = math.max(0, c.v[p.at] - n)
end

function resource.available(c, p)
  return math.max(0, p.capacity - c.v[p.at])
end
