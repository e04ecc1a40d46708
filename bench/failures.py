"""What can go wrong with a measurement."""

from __future__ import annotations


class MeasurementFailed(Exception):
    """A process ended without a result, or did not end; the message says which one, and what it said."""


class Killed(MeasurementFailed):
    """It was ended by SIGKILL, as it may have been meant to be."""


class NoServer(Exception):
    """PostgreSQL cannot be started here; the message says why."""


class NoPeers(Exception):
    """The peers could not be installed; the message says why."""
