"""Search by words and by meaning. `journal/documents.py` stores the index."""
