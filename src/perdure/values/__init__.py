"""Values and their limits: codec, clock, durations, tokens, prices, text. Imports nothing of ours but errors."""
