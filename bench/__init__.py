"""Speed and size of Perdure beside a bare commit: `make bench`, or `python -m bench --help`.

Counts (syncs, statements, bytes) are the same on every machine and are the hard gate. Times are ratios to a
floor, measured in the same process and the same minute: blocks of floor and ours take turns, and the median
of the paired ratios counts. Every measurement runs in a process of its own (`bench.child`).
"""
