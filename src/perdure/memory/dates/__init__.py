"""Dates and times as people write them."""
