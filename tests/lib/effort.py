# SPDX-License-Identifier: MIT
"""How much of what it knows a test of scripts tries: WEIR_PERCENT of its cases or operations, all by default. WEIR_SEED
repeats a choice."""
import os
import random
import time

SEED = int(os.environ.get("WEIR_SEED") or time.time_ns() % 2**32)
PERCENT = int(os.environ.get("WEIR_PERCENT") or 100)


def operations(usual):
    """The number of random operations: WEIR_OPERATIONS, or else WEIR_PERCENT of `usual`."""
    return int(os.environ.get("WEIR_OPERATIONS") or usual * PERCENT // 100)


def chosen(cases):
    """At least one of the cases, in their order. Says how many they are."""
    cases = list(cases)
    n = max(1, len(cases) * min(PERCENT, 100) // 100)
    places = sorted(random.Random(SEED).sample(range(len(cases)), n))
    print(f"WEIR_SEED={SEED} WEIR_PERCENT={PERCENT}: {n} of {len(cases)} cases", flush=True)
    return [cases[place] for place in places]
