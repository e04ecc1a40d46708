"""Runs: steps, effects, items, waits and writes, as protocols without I/O."""
