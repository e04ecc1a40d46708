"""The machine underneath: processes, files, file locks, signals, failpoints."""
