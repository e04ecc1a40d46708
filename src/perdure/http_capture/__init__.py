"""Capture without code: paid model calls of an unchanged program are recorded at its HTTP libraries.

`perdure run --capture` and `perdure.capture()` install it. See docs/guides/capture.md.
"""
