"""How much of what a question needs is recalled: `python -m bench.recall FILE...`."""
