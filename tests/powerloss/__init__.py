"""What a power cut may leave behind: every moment of a workload, turned into disk images that must open.

vfs.py        a SQLite VFS that logs what goes to the disk, and when it was told to be safe there
disk.py       from a log to the images that a power cut at its end may leave
workload.py   real runs on that VFS, with a mark after each call that has returned
judge.py      opens an image and says what is wrong with it
explore.py    all of it, for some seeds, as one process; the tests start one per core
"""
