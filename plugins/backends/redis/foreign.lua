-- The limit of an algorithm that the server does not have. Nodes decide it (compare_and_set.lua);
-- as far as the server goes, what is committed has been decided.
local foreign = {words = 0, is_foreign = true}

function foreign.configure(p)
  p.max, p.recovery = p.capacity, p.keep > 0 and p.keep or nil
end

function foreign.init()
end

function foreign.wait()
  return 0
end

function foreign.take()
end

function foreign.available()
  return 0
end
