"""Real agents on a real PostgreSQL, and everything that happens to servers, networks and clocks."""
