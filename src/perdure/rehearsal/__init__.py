"""`perdure replay-check`: today's code replays recorded runs, and nothing is written, waited for or sent.

`passes` opens runs without a lease, `replayed` follows the code through one of them, `stand_ins` takes the place of
results that are not recorded, and `reports` says what the code has not reached and what that means.
"""
