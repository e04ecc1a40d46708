"""Perdure under other frameworks."""
