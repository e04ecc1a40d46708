"""A store of this schema is brought forward by a program that knows one more, and its agent goes on.

`writer.py` writes the store in processes of their own, the last of which is killed in the middle of a run.
`test_releases.py` opens it with a made-up next schema. Nothing is published yet: once a release is out, its stores
become fixtures here, and are never written again.
"""
