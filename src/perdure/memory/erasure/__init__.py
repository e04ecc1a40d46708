"""Erasure: finding and removing a memory, and its text wherever else it is."""
