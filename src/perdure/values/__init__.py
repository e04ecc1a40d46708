"""Values and their limits: codec, clock, durations, tokens, limits, text. Imports nothing of ours but errors."""
