-- The state of a set: one hash. Its fields:
--
--   H           the head: numbers of the set (below), then those of each limit
--   D, R        the definition; the run_id of the server that last changed it
--   S           the sessions: names, each followed by a newline
--   s<node>     a session          t<node>.<slot>   a ticket: a waiter, or what is held
--   w<number>   a place in the wait queue           l<limit>.<page>  a page of a sliding window
--   i<node>     the inbox of a session              X                the text of foreign limits
--   K           the instant at which that text is as new, us
--
-- Numbers are stored as doubles, little-endian. A call reads through a cache and writes at its end,
-- so a call that fails has changed nothing.
local state = {}

-- Numbers of the head.
local head = {
  FORMAT = 1,      -- of the state
  LAST = 2,        -- the instant of the last change, us
  SHIFT = 3,       -- added to the server's clock, which was set back or is behind the last one's
  FENCE = 4,       -- the last fencing token
  GRACE = 5,       -- until then nothing is granted
  EXPIRY = 6,      -- no session ends before
  FIRST = 7,       -- the first place in the wait queue that may be taken
  NEXT = 8,        -- the next place to be taken
  WAITING = 9,     -- waiters
  TIMER_PLACE = 10, -- the place of the waiter with the node that was last told to keep a timer,
  TIMER_AT = 11,   -- and its instant
  FLOOR = 12,      -- the last reservation: nothing is granted before
  KEPT = 13,       -- the hash lasts until then
  GRANTED = 14, RELEASED = 15, REAPED = 16, CANCELED = 17, OVERDUE = 18, -- counted
  VERSION = 19,    -- of the text of foreign limits
  WORDS = 19,
}
local FORMAT = 1

-- Ends the call with an error reply. Its first word is the code.
function state.fail(message)
  error({err = message}, 0)
end

function state.get(c, field)
  local value = c.fields[field]
  if value == nil then
    value = redis.call('HGET', c.key, field)
    c.fields[field] = value
  end
  return value
end

function state.put(c, field, value)
  if not c.written[field] then
    c.order[#c.order + 1] = field
    c.written[field] = true
  end
  c.fields[field], c.changed = value, true
end

function state.drop(c, field)
  if state.get(c, field) then
    state.put(c, field, false)
  end
  c.tables[field] = nil
end

local formats = {} -- by the count of numbers

-- Returns the format of so many numbers.
function state.format(count)
  local format = formats[count]
  if not format then
    format = '<' .. string.rep('d', count)
    formats[count] = format
  end
  return format
end

-- Returns the numbers of a text, or ends the call if there are not `n` (nil: any number) of them.
function state.unpack(text, n, field)
  local count = #text / 8
  if count % 1 ~= 0 or (n and count ~= n) then
    state.fail('CORRUPT ' .. field)
  end
  local numbers = {struct.unpack(state.format(count), text)}
  numbers[#numbers] = nil -- where it ended
  for i = 1, count do
    local number = numbers[i]
    if not (number >= 0 and number <= EXACT and number % 1 == 0) then
      state.fail('CORRUPT ' .. field)
    end
  end
  return numbers
end

-- The last call that changed each key: what it has read and written. Reading numbers is a fifth of
-- a call, and mostly they are as it has left them: where the text is the same, so are they.
local KEPT_MAX = 1024
local kept, kept_n = {}, 0

-- Returns what the last call has left, or nil. If this one fails, there is nothing left: it may have
-- changed the numbers.
function state.recall(key)
  local before = kept[key]
  if before then
    kept[key], kept_n = nil, kept_n - 1
    return before
  end
end

-- Leaves what is now stored to the next call.
function state.keep(c)
  if kept_n >= KEPT_MAX then
    kept, kept_n = {}, 0
  end
  c.before, c.args, c.pushes, c.fields.X = nil, nil, nil, nil
  kept[c.key], kept_n = c, kept_n + 1
end

-- Returns the numbers of a field that must be there, as a table that other calls of this function
-- return as well. `n`: so many, or any number.
function state.numbers(c, field, n)
  local numbers = c.tables[field]
  if not numbers then
    local text, before = state.get(c, field) or state.fail('CORRUPT ' .. field), c.before
    numbers = before and before.fields[field] == text and before.tables[field] or
      state.unpack(text, n, field)
    c.tables[field] = numbers
  end
  return numbers
end

function state.put_numbers(c, field, numbers)
  local n = #numbers
  c.tables[field] = numbers
  state.put(c, field, struct.pack(formats[n] or state.format(n), unpack(numbers)))
end
