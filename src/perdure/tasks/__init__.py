"""Tasks: runs that are queued durably, and done by whichever worker takes them."""
