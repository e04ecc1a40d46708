"""Upkeep of a whole store: garbage collection and compaction, across all nouns."""
