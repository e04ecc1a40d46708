"""Begins the capture of a process that `perdure run --capture` has started, when it first imports an HTTP library."""

from __future__ import annotations

from perdure.http_capture import import_hook


def begin() -> None:
    """Wait for the first HTTP library: a program without one is not slowed down."""
    import_hook.BEFORE_FIRST.append(_begin)
    import_hook.install()


def _begin() -> None:
    from perdure.http_capture.process import begin_from_environment

    begin_from_environment()
