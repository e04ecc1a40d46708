"""Hooks of coding agents: a client without imports, and the helper process that answers it from the store."""
