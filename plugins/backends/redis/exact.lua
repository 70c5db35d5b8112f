-- Exact arithmetic. Lua 5.1 has doubles only, so every number of this library is an integer below
-- 2^53, and every product that could reach 2^53 is formed digit by digit.
--
-- A rate of C units per W us, with g = gcd(C, W), is u = C/g units per s = W/g us. Amounts and time
-- have a common unit, the tick: one unit is s ticks, one us brings u ticks. A time is kept as a
-- pair: whole us, and ticks from 0 to u - 1. So levels, debts and instants are exact, and nothing
-- is rounded. An instant that a caller sees is the pair rounded up to whole us: never early.
local EXACT = 2 ^ 53           -- integers below it are exact
local AMOUNT_MAX = 2 ^ 49      -- of capacity and burst, units
local WINDOW_MAX = 2 ^ 51      -- us, 71 years: with an instant, less than 2^53 until the year 2184
local NEVER = EXACT            -- a wait that time does not end

local exact = {}

function exact.gcd(a, b)
  while b ~= 0 do
    a, b = b, math.fmod(a, b)
  end
  return a
end

-- Returns quotient and remainder of n * a / m, for m up to 2^51, by the binary digits of n: with a
-- remainder r < m and a < m, 2r + a is below 3m, which is below 2^53.
local function muldiv_long(n, a, m)
  local quotient, r, power = 0, 0, 1
  while power * 2 <= n do
    power = power * 2
  end
  while power >= 1 do
    quotient, r = quotient * 2, r * 2
    if n >= power then
      n, r = n - power, r + a
    end
    while r >= m do
      quotient, r = quotient + 1, r - m
    end
    power = power / 2
  end
  return quotient, r
end

-- Returns quotient and remainder of n * a / m. The quotient must be below 2^53.
function exact.muldiv(n, a, m)
  local rest = math.fmod(a, m)
  local whole, product = n * ((a - rest) / m), n * rest
  if product < EXACT then
    local r = math.fmod(product, m)
    return whole + (product - r) / m, r
  end
  local quotient, r = muldiv_long(n, rest, m)
  return whole + quotient, r
end

-- Returns n * a / m rounded up.
function exact.muldiv_up(n, a, m)
  local quotient, r = exact.muldiv(n, a, m)
  return r > 0 and quotient + 1 or quotient
end

-- Returns a / b rounded down.
function exact.div(a, b)
  return (a - math.fmod(a, b)) / b
end

-- Returns the pair with its ticks brought into 0 .. u - 1. They may be off by one us either way.
function exact.carry(us, ticks, u)
  if ticks >= u then
    return us + 1, ticks - u
  elseif ticks < 0 then
    return us - 1, ticks + u
  end
  return us, ticks
end

-- Returns the pair, or zero if it is negative.
function exact.positive(us, ticks)
  if us < 0 then
    return 0, 0
  end
  return us, ticks
end

local short_numbers = {} -- read before, by their texts: reading one is as slow as ten lines of this

-- Returns the number that a text is, or nil.
function exact.number(text)
  local n = short_numbers[text]
  if not n then
    n = tonumber(text)
    if n and #text <= 2 then
      short_numbers[text] = n
    end
  end
  return n
end

-- Returns the pair rounded up to whole us; 0 if it is not positive.
function exact.ceil(us, ticks)
  if us < 0 then
    return 0
  end
  return ticks > 0 and us + 1 or us
end

-- Returns how many whole units flow in during a time: (us * u + ticks) / s rounded down.
function exact.units(us, ticks, u, s)
  local quotient, r = exact.muldiv(us, u, s)
  return quotient + exact.div(r + ticks, s)
end
