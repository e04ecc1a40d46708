"""Finding texts by their words and by their meaning. `journal/documents.py` says how they get into the store."""
