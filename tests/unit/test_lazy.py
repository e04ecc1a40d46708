"""Attributes that are computed when they are first read."""

from __future__ import annotations

import threading

from perdure.values.lazy import lazy


class Slow:
    """Its attribute takes until it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.computed = 0

    @lazy
    def answer(self) -> int:
        self.begun.set()
        self.go_on.wait(20)
        self.computed += 1
        return 42


def test_the_value_is_computed_once() -> None:
    slow = Slow()
    slow.go_on.set()
    assert [slow.answer, slow.answer, slow.computed] == [42, 42, 1]


def test_another_instance_does_not_wait_for_a_thread_that_computes() -> None:
    """In a forked child that thread does not exist any more."""
    slow, quick = Slow(), Slow()
    quick.go_on.set()
    computing = threading.Thread(target=lambda: slow.answer)
    computing.start()
    assert slow.begun.wait(20)
    assert quick.answer == 42
    assert slow.computed == 0
    slow.go_on.set()
    computing.join()
