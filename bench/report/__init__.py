# SPDX-License-Identifier: MIT
"""The report of bench/run: figures, verdicts, tables, plots."""
