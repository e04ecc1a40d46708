"""The page: what people see of their agents, and how they answer them. A new page is one line in `pages.py`."""
