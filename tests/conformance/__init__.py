"""The tables of the semantics, row by row, on every store."""
