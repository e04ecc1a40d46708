"""Moves an agent between stores in one file. See docs/operations/moving.md.

The file holds the agent's journal entry by entry, with the chains and signatures that prove it. Stream numbers and
object ids belong to a store, and so does the chain over them. So an import translates the entries, chains them anew,
and records their origin in the agent's own stream.
"""
