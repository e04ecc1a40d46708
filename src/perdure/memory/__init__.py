"""Recall: which memories a question is about. `fusion.py` says how; `bench/recall` measures it."""
