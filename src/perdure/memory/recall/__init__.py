"""Recall: which memories answer a question. `ranking.py` scores them; `bench/recall` measures it."""
