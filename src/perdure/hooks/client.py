"""The program that coding agents start at every hook. It imports the standard library only, so that it starts at once.

It sends the payload to a helper process over a Unix socket, prints the answer, and starts the helper if there is none.
It fails open: whatever happens, it exits with 0, prints nothing that is not an answer, and writes a line to the log.
`perdure connect` writes a command that starts this file with `python -I -S`, without the package around it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
ANSWER_BYTES_MAX = 4 * 1024 * 1024
LOG_BYTES_MAX = 1024 * 1024
WAIT_SECONDS = {"SessionStart": 8.0, "PreCompact": 5.0, "PreCompress": 5.0}
WAIT_SECONDS_ELSE = 2.5
"""Codex ends a SessionEnd hook after 3 seconds. A prompt and a tool call should not wait longer either."""
POLL_SECONDS = 0.01
FOLDER_CHARACTERS_MAX = 70
"""The path of a socket has at most 104 bytes on macOS."""
READ_ONLY_TOOLS = frozenset(
    "Read Grep Glob LS ToolSearch WebFetch WebSearch Task TodoRead NotebookRead BashOutput read_file read_many_files "
    "glob search_file_content grep_search list_directory web_fetch google_web_search view_image update_plan".split()
)
"""Tools that change nothing. They are not sent to the helper."""
TOOL_EVENTS = ("PostToolUse", "PostToolUseFailure", "AfterTool")


class Options:
    """The command line: EVENT, and --tool, --agent and --store with their values."""

    def __init__(self, arguments: list[str]) -> None:
        values = dict(zip(arguments[1::2], arguments[2::2], strict=False))
        self.event = arguments[0] if arguments else ""
        self.tool = values.get("--tool", "")
        self.agent = values.get("--agent") or os.environ.get("PERDURE_AGENT") or "assistant"
        self.store = values.get("--store") or os.environ.get("PERDURE_URL") or ""


def main(arguments: list[str] | None = None) -> int:
    """Answer one hook. Always returns 0: a hook must not break the session."""
    try:
        _answer(Options(sys.argv[1:] if arguments is None else arguments))
    except Exception as error:  # fails open
        note(f"{type(error).__name__}: {error}")
    return 0


def _answer(options: Options) -> None:
    payload = json.loads(sys.stdin.buffer.read(PAYLOAD_BYTES_MAX) or b"{}")
    if not isinstance(payload, dict):
        raise RuntimeError("the payload is not an object")
    folder = payload.get("cwd") or os.getcwd()
    if is_off(folder):
        return
    if options.event in TOOL_EVENTS and payload.get("tool_name") in READ_ONLY_TOOLS:
        return
    store = find_store(options.store, folder)
    request = {"event": options.event, "tool": options.tool, "folder": folder, "payload": payload}
    answer = exchange(options, store, json.dumps(request).encode() + b"\n")
    if answer:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def is_off(folder: str) -> bool:
    """Whether the user has turned hooks off: by a variable, or by a file for this folder or for everything."""
    if os.environ.get("PERDURE_HOOKS", "").lower() in ("0", "off", "no", "false"):
        return True
    places = [os.path.expanduser("~"), *_parents(folder)]
    return any(os.path.exists(os.path.join(place, ".perdure", "hooks-off")) for place in places)


def find_store(store: str, folder: str) -> str:
    """Return the store of a folder, as `perdure.store.locate` finds it."""
    path = store.removeprefix("sqlite:///")
    if path:
        return path if "://" in path else os.path.join(folder, os.path.expanduser(path))
    for place in _parents(folder):
        found = os.path.join(place, ".perdure")
        if os.path.isdir(found):
            if os.lstat(found).st_uid != os.geteuid():  # planted, for example in /tmp
                raise PermissionError(f"{found} belongs to another user")
            return os.path.join(found, "perdure.db")
    return os.path.join(os.path.expanduser("~"), ".perdure", "perdure.db")


def _parents(folder: str) -> list[str]:
    found, above = [], ""
    while folder != above:
        found.append(folder)
        above, folder = folder, os.path.dirname(folder)
    return found


def runtime_folder() -> str:
    """Return the folder for sockets and the log, which only its owner can enter."""
    own = os.path.join(os.path.expanduser("~"), ".perdure")
    folder = os.path.join(own, "hooks")
    if len(folder) > FOLDER_CHARACTERS_MAX:
        import hashlib
        import tempfile

        short = hashlib.sha256(folder.encode()).hexdigest()[:12]
        folder = os.path.join(tempfile.gettempdir(), f"perdure-{os.getuid()}-{short}")
    else:
        os.makedirs(own, mode=0o700, exist_ok=True)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to other users")
    return folder


def socket_path(options: Options, store: str) -> str:
    """Return the socket of the helper for a store and an agent. A new release gets a new helper."""
    import hashlib

    here = os.path.abspath(__file__)
    parts = (here, str(os.stat(here).st_mtime_ns), sys.executable, store, options.agent)
    return os.path.join(runtime_folder(), hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16] + ".sock")


def exchange(options: Options, store: str, request: bytes) -> dict[str, object] | None:
    """Send a request and return the answer. A helper that is not there, or dies first, is started once."""
    path, started = socket_path(options, store), False
    until = time.monotonic() + WAIT_SECONDS.get(options.event, WAIT_SECONDS_ELSE)
    while (left := until - time.monotonic()) > 0:
        try:
            return _ask(path, request, left)
        except (FileNotFoundError, ConnectionError):
            if not started:
                _start_helper(path, options.agent, store)
                started = True
            time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no answer to {options.event} in time")


def _ask(path: str, request: bytes, seconds: float) -> dict[str, object] | None:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(seconds)
        line.connect(path)
        line.sendall(request)
        data = b""
        while not data.endswith(b"\n"):
            more = line.recv(1 << 16)
            if not more:
                raise ConnectionResetError("the helper left without an answer")
            data += more
            if len(data) > ANSWER_BYTES_MAX:
                raise RuntimeError("the answer is too long")
    answer = json.loads(data)
    if answer.get("error"):
        raise RuntimeError(answer["error"])
    output: dict[str, object] | None = answer.get("output")
    return output


def _start_helper(path: str, agent: str, store: str) -> None:
    """Start the helper, detached from this process and from the terminal."""
    import subprocess

    command = [sys.executable, "-P", "-m", "perdure.hooks.server", path, agent, store]
    with open(_log_path(), "ab") as log:
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=runtime_folder()
        )


def note(text: str) -> None:
    """Write a line to the log. If even that fails, nobody is told: the session is worth more."""
    try:
        path = _log_path()
        if os.path.exists(path) and os.path.getsize(path) > LOG_BYTES_MAX:
            os.replace(path, path + ".old")
        with open(path, "a") as log:
            log.write(time.strftime("%Y-%m-%dT%H:%M:%S ") + " ".join(text.split())[:500] + "\n")
    except OSError:
        return


def _log_path() -> str:
    return os.path.join(runtime_folder(), "hooks.log")


if __name__ == "__main__":
    sys.exit(main())
