"""How the demo looks: drawn with rich in a terminal, in plain lines elsewhere, or as one JSON object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from .evidence import ASSUMED, Report
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

    def begin(self, folder: Path, *, kept: bool) -> None:
        """The demo starts in this folder."""

    def update(self, life: Life) -> None:
        """A process has come so far; with an exit code it has ended."""

    def end(self, report: Report, kept: Path | None) -> None:
        """All is counted; the files are gone unless they are kept in a folder."""


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

    def end(self, report: Report, kept: Path | None) -> None:
        facts = msgspec.to_builtins(report) | {
            "lives": [_facts_of(life) for life in report.lives],
            "folder": str(kept) if kept else None,
        }
        print(msgspec.json.format(msgspec.json.encode(facts)).decode())


def _facts_of(life: Life) -> dict[str, Any]:
    return {
        "pid": life.pid,
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
        self._shown: set[int] = set()

    def begin(self, folder: Path, *, kept: bool) -> None:
        print(f"{TITLE}\n{ABOUT}\n{where(folder, kept)}\n", flush=True)

    def update(self, life: Life) -> None:
        if life.number not in self._shown:
            self._shown.add(life.number)
            print(f"process {life.number} (pid {life.pid}): {what_it_found(life)}", flush=True)
        if life.exit_code is not None:
            print(f"  executed calls {life.before + 1} to {life.position}\n  {how_it_ended(life)}", flush=True)

    def end(self, report: Report, kept: Path | None) -> None:
        print()
        for what, ours, restart in [COLUMNS, *comparison(report)]:
            print(f"{what:28} {ours:>14} {restart:>18}")
        print(f"\n{assumptions()}\n")
        for claim in report.claims:
            print(f"{'ok  ' if claim.holds else 'FAIL'} {claim.claim}")
        print(f"\n{conclusion(report, kept)}")


def where(folder: Path, kept: bool) -> str:
    """The folder that one can look into meanwhile."""
    return f"Folder: {folder}" + ("" if kept else " (removed at the end; --folder PATH keeps one)")


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


def conclusion(report: Report, kept: Path | None) -> str:
    """The last line."""
    verdict = "Every claim was verified by counting" if report.ok else "A claim does not hold"
    where = f"; the files are in {kept}" if kept else ""
    return f"{verdict}{where}."
