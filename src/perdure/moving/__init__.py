"""Moving house: an agent in one file, out of one store and into another. See docs/moving.md.

A file has the agent's journal as it was written, entry by entry, with the chains and signatures that prove it. Numbers
of streams and ids of objects belong to a store, and so does the chain over them: who imports translates the entries,
chains them anew, and says in the agent's own stream where they come from.
"""
