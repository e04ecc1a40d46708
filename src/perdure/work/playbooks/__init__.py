"""Playbooks: steps that a strong model worked out, so that a cheap one can follow them."""
