"""Perdure beside its peers: starts `bench.peers` in processes, tells them what to do, and compares what they say."""
