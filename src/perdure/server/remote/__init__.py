"""The server's side of a remote store: which statements a key may run, and their replay in one transaction."""
