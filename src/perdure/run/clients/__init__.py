"""Runs whose program is somewhere else: a client makes each call with a request, and executes the bodies itself."""
