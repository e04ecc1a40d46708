"""Configuration files of coding agents: entries are added and taken back without touching the rest of the text."""
