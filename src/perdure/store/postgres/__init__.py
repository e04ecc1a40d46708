"""The store for many machines: a schema in a PostgreSQL database."""
