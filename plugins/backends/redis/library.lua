#!lua name=weir
-- SPDX-License-Identifier: MIT
--
-- Sets of limits on a Redis server, as a library of Redis Functions (Redis 7.0 and later). The file
-- is made of the parts that lie beside this one, in the order of meson.build. PROTOCOL.md has what
-- a client must know: calls, arguments, replies, failures. In short:
--
-- Keys      one for each set, or each subject of a per-subject set: a hash, KEYS[1] of every call;
--           and the inboxes, lists to which grants are pushed: named by the nodes
-- Calls     weir_open, weir_heartbeat, weir_leave: sessions        weir_assert, weir_list: recovery
--           weir_acquire, weir_take, weir_reserve, weir_cancel     weir_batch, weir_unbatch: quota
--           weir_release, weir_return, weir_pump, weir_snapshot    weir_fetch, weir_commit: plugins
-- Arguments RUN_ID DEFINITION NODE, then those of the call
-- Replies   arrays of integers, the first mostly a status; errors begin with a code
-- State     state.lua has the fields of the hash, each algorithm the numbers of its state
--
-- Within the library, what a file offers is a table of its name; other functions begin with its
-- name or that of the thing. Nothing but functions and numbers is made while the library is loaded:
-- then Redis 7.0 has no `math`, `string`, `table`. Numbers are integers below 2^53.

