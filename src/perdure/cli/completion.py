"""`perdure completion`: shell completion of commands, options, runs and agents."""

from __future__ import annotations

import os
import signal
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    shell_complete,
)
from click.shell_completion import split_arg_string as split

from perdure.cli.main import COMPLETE
from perdure.cli.output import CommandOutput
from perdure.cli.store_option import json_option

SECONDS_MAX = 3.0
"""Completion gives up after this time: a slow server must not block the user's typing."""

_BASH = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_TYPED="${COMP_LINE:0:COMP_POINT}" COMP_PIECE="$2" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _BashCompletion(BashComplete):
    """Like click's, but an id such as `deploy@1/push` or `trip:42`, which bash splits, is one word."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        typed = os.environ["COMP_TYPED"]
        words = split(typed)[1:]
        return (words, "") if typed[-1:].isspace() or not words else (words[:-1], words[-1])

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return the text with which bash replaces the last piece of the word."""
        _, incomplete = self.get_completion_args()
        cut = incomplete.removesuffix(os.environ.get("COMP_PIECE", ""))
        return f"{item.type},{item.value.removeprefix(cut)}"


add_completion_class(_BashCompletion)


def complete(cli: click.Command, instruction: str) -> int:
    """Answer a completion request of a shell."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    return shell_complete(cli, {}, "perdure", COMPLETE, instruction)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@json_option
def completion(shell: str | None, as_json: bool) -> int:
    """Print the shell script that completes commands, options, runs and agents.

    For this session: eval "$(perdure completion bash)". To install it, add that line to ~/.bashrc (zsh: ~/.zshrc).
    For fish: perdure completion fish > ~/.config/fish/completions/perdure.fish
    """
    wanted = shell or os.path.basename(os.environ.get("SHELL", ""))
    made = get_completion_class(wanted)
    if made is None:
        raise click.UsageError("name the shell: perdure completion bash, zsh or fish")
    nothing: dict[str, Any] = {}
    script = made(click.Group("perdure"), nothing, "perdure", COMPLETE).source()
    if as_json:
        CommandOutput(as_json).json({"shell": wanted, "script": script})
    else:
        print(script, end="")
    return 0
