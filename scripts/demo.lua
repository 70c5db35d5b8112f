-- SPDX-License-Identifier: MIT
-- What wrk sends in the demo, and how it behaves: a client that is refused pauses a little.
-- Arguments: tokens asked for, tokens used, milliseconds of work. Totals by set go to stdout.

local pause_ms = 20
local threads = {}
local owed = 0 -- answers 429 that have not been paused for

us, eu, refused, others = 0, 0, 0, 0

function setup(thread)
   table.insert(threads, thread)
end

function init(args)
   wrk.headers["X-Tokens"] = args[1]
   wrk.headers["X-Used"] = args[2]
   wrk.headers["X-Service-Ms"] = args[3]
end

function delay()
   if owed == 0 then
      return 0
   end
   owed = owed - 1
   return pause_ms
end

function response(status, headers)
   local set = headers["X-Weir-Set"]

   if status == 429 and tonumber(headers["Retry-After"]) then
      owed = owed + 1
      refused = refused + 1
   elseif status == 200 and set == "us" then
      us = us + 1
   elseif status == 200 and set == "eu" then
      eu = eu + 1
   else
      others = others + 1
   end
end

function done(summary)
   local failed = summary.errors.connect + summary.errors.read + summary.errors.write +
      summary.errors.timeout
   local total = { us = 0, eu = 0, refused = 0, others = failed }

   for _, thread in ipairs(threads) do
      for name in pairs(total) do
         total[name] = total[name] + thread:get(name)
      end
   end
   for name, n in pairs(total) do
      io.write("client ", name, " ", n, "\n")
   end
end
