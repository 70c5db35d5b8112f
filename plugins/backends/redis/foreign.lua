-- The limit of an algorithm that the server does not have. Nodes decide it (compare_and_set.lua);
-- as far as the server goes, what is committed has been decided. Of a resource the units that a
-- ticket holds may be others than those that the text counts as held: a session ended without a
-- node that could say so to the algorithm, or a ticket was asserted. The next node to commit sets
-- that right. Words: units that the text counts and no ticket has, units that the text lacks.
local foreign = {words = 2, is_foreign = true}

function foreign.configure(p)
  p.max, p.recovery = p.capacity, 0 -- how long the text lasts says the commit
  if p.holds > 1 then
    return 'a resource is 1, and a rate 0'
  end
end

function foreign.init()
end

function foreign.wait()
  return 0
end

-- Moves units from one word to the other, as far as they are there; the rest is added to that. The
-- text that a node has is not the one that it is to be decided by any more.
local function foreign_balance(c, p, from, to, n)
  local v = c.v
  if p.holds == 0 or c.accounts then
    return
  end
  local both = math.min(n, v[from])
  v[from], v[to] = v[from] - both, math.min(v[to] + n - both, AMOUNT_MAX)
  v[head.VERSION], c.changed = v[head.VERSION] + 1, true
end

function foreign.take(c, p, n)
  foreign_balance(c, p, p.at, p.at + 1, n)
end

function foreign.give_back(c, p, n)
  foreign_balance(c, p, p.at + 1, p.at, n)
end

function foreign.available()
  return 0
end
