"""The source of truth: append-only, hash-chained streams of entries. Everything else is a view of them."""
