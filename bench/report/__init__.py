# SPDX-License-Identifier: MIT
"""What bench/run makes of what the benchmarks say: figures, verdicts, tables, plots."""
