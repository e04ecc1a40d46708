"""Tasks: runs that are queued durably and executed by any worker."""
