"""The documentation, run. What the pages may hold is said in `pages.py`."""
