"""Stores as releases have written them, kept under tests/fixtures/stores, and opened by today's code.

python -m tests.releases 0.1.0                              writes the stores of this tree, sqlite.db and postgres.sql
python -m tests.releases schema-1 --source ../old/src       those of an older tree: a git worktree of its commit

Until a release is out, its folder is written anew whenever its schema or its nouns have changed (writer.py PARTS). Once
it is out, never: what it holds is what people have.
"""
