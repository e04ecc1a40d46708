"""Runs: steps, effects, items and writes as protocols without I/O, and the drivers that perform them."""
