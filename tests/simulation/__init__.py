"""Leases, claims, heartbeats and effects across hosts, in virtual time: thousands of histories, each out of one seed.

    python -m tests.simulation --seed 4711 --trace        what happened there, line by line
    python -m tests.simulation --count 100000             look for more
    python -m tests.simulation --broken no-fence          how soon a deliberate fault is found

Real is everything that decides: `LeaseKeeper` and its units, `ClaimRun`, `Append`, the protocols of runs, steps and
effects, and `PostgresCommit`, which repeats and looks up commits after a cut connection. Simulated is what they run on:

world       the scheduler, and the time that nobody in it sees
database    rows, row locks and transactions as PostgreSQL has them under READ COMMITTED
statements  the named statements, by hand
network     connections and what can befall a message
hosts       clocks, processes, the bodies of steps and effects
history     one world with all of this, and its faults; `weather` says how many of which kind
rules       what must hold
sabotage    faults put in on purpose, which the rules must find
seams       where Perdure is given simulated time and processes; `unblocking` turns its blocking code into generators
"""
