"""The base of every noun: protocols and drivers, scopes and write buffers, agent writes, names, the engine."""
