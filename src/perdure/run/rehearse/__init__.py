"""`perdure replay-check`: current code replays recorded runs. It writes nothing, waits for nothing and sends nothing.

`rehearsal` opens runs without a lease, `replay` follows the code through one of them, `placeholders` replaces results
that are not recorded, and `verdict` says what the code did not reach and what that means.
"""
