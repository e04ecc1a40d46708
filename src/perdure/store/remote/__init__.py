"""The store behind `perdure serve`: a client that speaks HTTP and needs no database driver."""
