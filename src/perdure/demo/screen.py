"""How the demo looks: drawn with rich in a terminal, in plain lines elsewhere, or as one JSON object."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from .evidence import ASSUMED, Report
from .stage import HOSTS, Stage
from .story import CALLS, Life

TITLE = f"An agent of {CALLS} tool calls is killed twice with SIGKILL, and goes on."
ABOUT = "It reviews 30 files, comments, tests, builds, pushes and deploys. All offline."

COLUMNS = ("", "with Perdure", "restart from zero")


class Display:
    """Something that shows the demo; this one shows nothing."""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def begin(self, stage: Stage, *, kept: bool) -> None:
        """The demo starts here."""

    def update(self, life: Life) -> None:
        """A process has come so far; with an exit code it has ended."""

    def end(self, report: Report, kept: Stage | None) -> None:
        """All is counted; files and store are gone unless they are kept."""


def choose_display(*, json: bool, plain: bool) -> Display:
    """The display that suits where the output goes."""
    if json:
        return JsonDisplay()
    from rich.console import Console

    from .terminal import TerminalDisplay

    console = Console(highlight=False)
    if plain or not console.is_terminal or console.is_dumb_terminal:
        return PlainDisplay()
    return TerminalDisplay(console)


class JsonDisplay(Display):
    """One JSON object at the end, on stdout."""

    def end(self, report: Report, kept: Stage | None) -> None:
        facts = msgspec.to_builtins(report) | {
            "lives": [_facts_of(life) for life in report.lives],
            "folder": str(kept.folder) if kept else None,
            "store": kept.shown if kept else None,
        }
        print(msgspec.json.format(msgspec.json.encode(facts)).decode())


def _facts_of(life: Life) -> dict[str, Any]:
    return {
        "host": life.host,
        "pid": life.pid,
        "waited_seconds": round(life.waited, 2),
        "remembered": life.remembered,
        "adopted": life.adopted,
        "executed": len(life.executed),
        "exit_code": life.exit_code,
        "died_in": life.died_in or None,
        "effects_outside": len(life.outside),
        "seconds": round(life.seconds, 2),
    }


class PlainDisplay(Display):
    """Lines without any colour, for pipes and logs."""

    def __init__(self) -> None:
        self._shown: set[tuple[int, int]] = set()

    def begin(self, stage: Stage, *, kept: bool) -> None:
        print("\n".join([TITLE, ABOUT, *where(stage, kept), ""]), flush=True)

    def update(self, life: Life) -> None:
        # A line for every ten seconds of waiting: this may go to a log.
        chapter = (life.number, math.ceil(life.wait.seconds_left / 10) if life.wait else -1 - bool(life.asks))
        if chapter not in self._shown:
            self._shown.add(chapter)
            print(what_it_waits_for(life) or f"{who(life)}: {what_it_found(life)}", flush=True)
        if life.exit_code is not None:
            print(f"  executed calls {life.before + 1} to {life.position}\n  {how_it_ended(life)}", flush=True)

    def end(self, report: Report, kept: Stage | None) -> None:
        print()
        for what, ours, restart in [COLUMNS, *comparison(report)]:
            print(f"{what:28} {ours:>14} {restart:>18}")
        print(f"\n{assumptions()}\n")
        for claim in report.claims:
            print(f"{'ok  ' if claim.holds else 'FAIL'} {claim.claim}")
        print(f"\n{conclusion(report, kept)}")


def where(stage: Stage, kept: bool) -> list[str]:
    """What one can look into meanwhile, and which machines there are."""
    lines = [f"Folder: {stage.folder}" + ("" if kept else " (removed at the end; --folder PATH keeps one)")]
    if stage.url:
        lines.append(f"Store: {stage.shown}" + ("" if kept else " (dropped at the end)"))
    if stage.hosts:
        lines.append(f"Hosts: {', '.join(stage.hosts)}, each with a process table that no other can look into")
    elif stage.no_hosts:
        lines.append(f"Hosts: only this one, where a death is seen at once. No others here: {stage.no_hosts}")
    return lines


def who(life: Life) -> str:
    """A process by its number; by its host too, when it was started on one of its own."""
    place = f" on {life.host}" if life.host in HOSTS else ""
    return f"process {life.number}{place}" + (f" (pid {life.pid})" if life.pid else "")


def what_it_waits_for(life: Life) -> str:
    """What keeps a process from being started, or from going on; empty when nothing does."""
    if life.asks:
        return f"  {life.asks!r} is in doubt: not done, but {life.host} waits until nobody elsewhere can still be at it"
    if life.wait is None:
        return ""
    return f"{life.host} waits: the lease of {life.wait.host} runs out in {math.ceil(life.wait.seconds_left)} s"


def what_it_found(life: Life) -> str:
    """Where a process starts from."""
    if not life.remembered:
        return "starts from nothing"
    adopted = f", {life.adopted} found done by its check" if life.adopted else ""
    return f"{life.remembered} calls from the journal{adopted}"


def how_it_ended(life: Life) -> str:
    """The end of a process in words."""
    if life.killed:
        return f"SIGKILL in call {life.journal.done + 1}: {life.died_in}"
    return (
        "finished" if life.exit_code == 0 else f"ended with exit code {life.exit_code}: see process-{life.number}.txt"
    )


def comparison(report: Report) -> list[tuple[str, str, str]]:
    """The table at the end: what it came to, and what it would have come to with a restart from zero each time."""
    made, repeated, spared = report.made, report.repeated, report.spared
    return [
        ("tool calls executed", str(made.calls), str(made.calls + spared.calls)),
        ("  of these, repeated", str(repeated.calls), str(spared.calls)),
        ("effects in the outside file", str(made.effects), str(made.effects + spared.effects)),
        ("  of these, repeated", str(repeated.effects), str(spared.effects)),
        ("money for model calls", _dollars(made.dollars), _dollars(made.dollars + spared.dollars)),
        ("  of this, paid twice", _dollars(repeated.dollars), _dollars(spared.dollars)),
        ("time in tools", _duration(made.seconds), _duration(made.seconds + spared.seconds)),
        ("  of this, spent twice", _duration(repeated.seconds), _duration(spared.seconds)),
    ]


def _dollars(amount: float) -> str:
    return f"${amount:.2f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def assumptions() -> str:
    """The prices behind money and time, which nobody can measure offline."""
    model, shell, publish = ASSUMED["model"], ASSUMED["shell"], ASSUMED["publish"]
    return (
        f"Assumed: a model call costs ${model.dollars:.2f} and takes {model.seconds:g} s, a shell command "
        f"{shell.seconds:g} s, publishing {publish.seconds:g} s; here each takes 0.06 s."
    )


def conclusion(report: Report, kept: Stage | None) -> str:
    """The last line."""
    verdict = "Every claim was verified by counting" if report.ok else "A claim does not hold"
    where = f"; the files are in {kept.folder}" if kept else ""
    store = f", the store is {kept.shown}" if kept and kept.url else ""
    return f"{verdict}{where}{store}."
