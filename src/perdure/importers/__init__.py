"""Imports of what other tools have stored: conversations become threads, notes become memories."""
