"""Reads and writes the git repository of a workspace without executing anything that it configures.

Whoever can write to a folder can write to its `.git`, and git runs programs that a repository names: filters, hooks,
file system monitors, signers, diff drivers. So git never sees the repository. It runs in a scratch directory with our
configuration, on copies of the index and of the ignore files. It reads from the object directory, which has no
configuration. New objects, the index and the branch are written by `WorkspaceRoot`, which follows no link.

A process killed during a commit leaves git's lock files behind. Ours begin with `perdure`. The next commit removes
them, and updates the index if the branch had already moved.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

import msgspec

from perdure.errors import PathRefused
from perdure.presence.workspace.layout import ARCHIVED, FOLDERS
from perdure.presence.workspace.root import WorkspaceRoot
from perdure.values.limits import GIT_INDEX_BYTES_MAX, GIT_SECONDS_MAX, GIT_TREE_BYTES_MAX, LOCK_SECONDS_MAX

GIT = ".git"
TREE, FILE, EXECUTABLE = b"40000", b"100644", b"100755"
_REF = re.compile(r"ref: (refs/heads/[^\s~^:?*\[\\\x00-\x20\x7f]+)\n?")
_OID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
_SHA256 = re.compile(rb"(?im)^\s*objectformat\s*=\s*\"?sha256\b")
_INDEX = f"{GIT}/index"
_OURS = b"perdure "
"""The first bytes of our lock files."""
_OBJECT_MODE = 0o444
_POLL_SECONDS = 0.01
_IGNORING = ("", *FOLDERS, ARCHIVED)

GitEntry = tuple[bytes, str]
"""An entry of a tree: mode and object id."""
GitTree = dict[str, GitEntry]


class NotCommitted(Exception):
    """Why there is no commit; it becomes a note of the sync."""


class GitHead(msgspec.Struct, frozen=True):
    """The branch that the next commit goes to."""

    path: str
    """The file in `.git` that names the last commit: a branch, or HEAD itself."""
    commit: str
    """The last commit; empty if there is none."""


@contextmanager
def open_repository(root: WorkspaceRoot) -> Iterator[GitRepository]:
    """Open the repository of a folder, with the locks that git takes while it commits."""
    inside = WorkspaceRoot(os.path.join(root.path, GIT))
    until = time.monotonic() + LOCK_SECONDS_MAX
    while (lock := inside.lock()) is None:  # unlike git's lock, it ends with its process
        if time.monotonic() > until:
            raise NotCommitted("another process is working in the repository")
        time.sleep(_POLL_SECONDS)
    try:
        with TemporaryDirectory(prefix="perdure-git-") as scratch, _hold_lock(root, _INDEX):
            yield GitRepository(root, scratch)
    finally:
        os.close(lock)


@contextmanager
def _hold_lock(root: WorkspaceRoot, path: str) -> Iterator[None]:
    """Hold git's lock of a file. An existing lock of ours belongs to a dead process."""
    lock = f"{path}.lock"
    if not root.make_new(lock, _OURS) and not (_recover_commit(root, lock) and root.make_new(lock, _OURS)):
        raise NotCommitted(f"{os.path.join(root.path, lock)} exists: another git is running, or was killed")
    try:
        yield
    finally:
        root.remove(lock)


def _recover_commit(root: WorkspaceRoot, lock: str) -> bool:
    """Finish the commit of a killed process of ours. Returns False if the lock belongs to another program."""
    data = root.read(lock, GIT_INDEX_BYTES_MAX)
    if data is not None and not data.startswith(_OURS):
        return False
    commit, _, index = (data or b"").removeprefix(_OURS).partition(b"\n")
    if index and head_of(root).commit == commit.decode("ascii", "replace"):
        root.write(_INDEX, index)
    root.remove(lock)
    return True


def _file(root: WorkspaceRoot, name: str) -> bytes:
    return root.read(f"{GIT}/{name}", GIT_INDEX_BYTES_MAX) or b""


def head_of(root: WorkspaceRoot) -> GitHead:
    """Return the current position of the branch."""
    text = os.fsdecode(_file(root, "HEAD"))
    if _OID.fullmatch(text):
        return GitHead("HEAD", text.strip())
    found = _REF.fullmatch(text)
    if found is None or not _is_ref(found[1]):
        raise NotCommitted(f"{os.path.join(root.path, GIT)} is not a repository with a readable branch")
    value = os.fsdecode(_file(root, found[1])) or _read_packed_ref(root, found[1])
    if value and not _OID.fullmatch(value):
        raise NotCommitted(f"{found[1]} names no commit")
    return GitHead(found[1], value.strip())


def _read_packed_ref(root: WorkspaceRoot, ref: str) -> str:
    lines = (line.split(" ") for line in os.fsdecode(_file(root, "packed-refs")).split("\n"))
    return next((words[0] for words in lines if words[1:] == [ref]), "")


def _is_ref(name: str) -> bool:
    parts = name.split("/")
    return ".." not in name and not any(
        not part or part.startswith(".") or part.endswith((".lock", ".")) for part in parts
    )


class GitRepository:
    """An open repository, and the scratch directory in which git runs."""

    def __init__(self, root: WorkspaceRoot, scratch: str) -> None:
        self._root, self._scratch = root, scratch
        self._hash = "sha256" if _SHA256.search(_file(root, "config")) else "sha1"
        self.head = head_of(root)
        self._prepare()

    def _prepare(self) -> None:
        """Create an empty repository with our configuration, and copy the files that git must read."""
        for folder in ("git/objects", "git/refs", "git/info", "tree"):
            os.makedirs(os.path.join(self._scratch, folder))
        version = f"1\n[extensions]\n\tobjectFormat = {self._hash}" if self._hash == "sha256" else "0"
        self._put("git/config", f"[core]\n\tbare = false\n\trepositoryFormatVersion = {version}\n".encode())
        self._put("git/HEAD", b"ref: refs/heads/none\n")
        if index := _file(self._root, "index"):
            self._put("git/index", index)

    def _put(self, path: str, data: bytes) -> None:
        whole = os.path.join(self._scratch, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "wb") as file:
            file.write(data)

    def advance(self, commit: str, changed: Mapping[str, GitEntry | None], who: str, subject: str) -> None:
        """Move the branch to a new commit if it has not moved, and update the changed paths in the index."""
        path, index = f"{GIT}/{self.head.path}", self._encode_index(changed)
        with _hold_lock(self._root, path):
            if head_of(self._root) != self.head:
                raise NotCommitted("another commit came first; the next sync commits the rest")
            self._root.write(f"{_INDEX}.lock", _OURS + f"{commit}\n".encode() + index)
            self._root.write(path, f"{commit}\n".encode())
            self._root.write(_INDEX, index)
        line = f"{self.head.commit or '0' * len(commit)} {commit} {who}\tcommit: {subject}\n"
        for name in dict.fromkeys(("HEAD", self.head.path)):
            with suppress(PathRefused, OSError):  # the commit stands even if the reflog cannot be written
                self._root.append(f"{GIT}/logs/{name}", line.encode("utf-8", "replace"))

    # -- objects --------------------------------------------------------------------------------------------------

    def trees(self, folders: Sequence[str]) -> dict[str, GitTree]:
        """Return the trees of some folders in the last commit; folders that it does not have are left out."""
        if not self.head.commit:
            return {}
        asked = "".join(f"{self.head.commit}:{folder}\n" for folder in folders).encode()
        told = self._git("cat-file", "--batch-check", said=asked).decode("ascii", "replace").splitlines()
        there = {folder: line.split() for folder, line in zip(folders, told, strict=True) if " tree " in line}
        if not told[folders.index("")].count(" tree "):
            raise NotCommitted(f"the commit {self.head.commit} cannot be read")
        if sum(int(size) for _, _, size in there.values()) > GIT_TREE_BYTES_MAX:
            raise NotCommitted("the last commit has too many files")
        data = self._git("cat-file", "--batch", said="".join(f"{oid}\n" for oid, _, _ in there.values()).encode())
        found = dict[str, GitTree]()
        for folder, (_, _, size) in there.items():
            start = data.index(b"\n") + 1
            found[folder] = self._parse_tree(data[start : start + int(size)])
            data = data[start + int(size) + 1 :]
        return found

    def _parse_tree(self, data: bytes) -> GitTree:
        width, found = hashlib.new(self._hash).digest_size, GitTree()
        while data:
            head, _, rest = data.partition(b"\0")
            mode, _, name = head.partition(b" ")
            found[os.fsdecode(name)] = (mode, rest[:width].hex())
            data = rest[width:]
        return found

    def blob(self, data: bytes) -> str:
        """Return the blob id of a file, without any conversion."""
        return self._hash_object(b"blob", data)[0]

    def put_blob(self, data: bytes) -> str:
        """Write a file as an object."""
        return self._write(b"blob", data)

    def put_tree(self, tree: GitTree) -> str:
        """Write a tree as an object."""
        names = sorted(tree, key=lambda name: os.fsencode(name) + (b"/" if tree[name][0] == TREE else b""))
        parts = (tree[name][0] + b" " + os.fsencode(name) + b"\0" + bytes.fromhex(tree[name][1]) for name in names)
        return self._write(b"tree", b"".join(parts))

    def put_commit(self, tree: str, who: str, message: str) -> str:
        """Write a commit on top of the last one."""
        parent = f"parent {self.head.commit}\n" if self.head.commit else ""
        text = f"tree {tree}\n{parent}author {who}\ncommitter {who}\n\n{message}"
        return self._write(b"commit", text.encode("utf-8", "replace"))

    def _hash_object(self, kind: bytes, data: bytes) -> tuple[str, bytes]:
        whole = kind + b" " + str(len(data)).encode() + b"\0" + data
        return hashlib.new(self._hash, whole, usedforsecurity=False).hexdigest(), whole

    def _write(self, kind: bytes, data: bytes) -> str:
        oid, whole = self._hash_object(kind, data)
        self._root.make_new(f"{GIT}/objects/{oid[:2]}/{oid[2:]}", zlib.compress(whole), _OBJECT_MODE)
        return oid

    # -- the index ------------------------------------------------------------------------------------------------

    def read_index_entries(self, paths: Sequence[str]) -> dict[str, GitEntry | None]:
        """Return the index entries of some paths and below them; None for an unmerged file."""
        if not os.path.exists(os.path.join(self._scratch, "git/index")):
            return {}
        found = dict[str, GitEntry | None]()
        for line in self._git("ls-files", "--stage", "-z", "--", *paths).split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            mode, oid, stage = about.split(b" ")
            found[os.fsdecode(path)] = (mode, oid.decode()) if stage == b"0" else None
        return found

    def _encode_index(self, changed: Mapping[str, GitEntry | None]) -> bytes:
        """Return the index with changed entries; None removes a path."""
        nothing = (b"0", "0" * hashlib.new(self._hash).digest_size * 2)
        entries = ((path, entry or nothing) for path, entry in changed.items())
        lines = (mode + f" {oid}\t".encode() + os.fsencode(path) + b"\0" for path, (mode, oid) in entries)
        self._git("update-index", "-z", "--index-info", said=b"".join(lines))
        with open(os.path.join(self._scratch, "git/index"), "rb") as file:
            return file.read()

    def find_ignored(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that git ignores: by rules of the folder, of the repository, or of the user."""
        for folder in _IGNORING:
            path = f"{folder}/.gitignore" if folder else ".gitignore"
            if rules := self._root.read(path):
                self._put(f"tree/{path}", rules)
        self._put("git/info/exclude", _file(self._root, "info/exclude"))
        own = self._find_user_ignore_file()
        more = ("-c", f"core.excludesFile={own}") if own else ()
        said = b"".join(os.fsencode(path) + b"\0" for path in paths)
        found = self._git(*more, "check-ignore", "--no-index", "-z", "--stdin", said=said, may_fail=True)
        return {os.fsdecode(path) for path in found.split(b"\0") if path}

    def _find_user_ignore_file(self) -> str:
        """Return the user's global ignore file, from the user's own configuration."""
        with suppress(NotCommitted):  # no such setting, or no home directory
            told = self._git("config", "--global", "--path", "--get", "core.excludesFile", own=True)
            return os.fsdecode(told).strip()
        return ""

    # -- git ------------------------------------------------------------------------------------------------------

    def _git(self, *arguments: str, said: bytes = b"", own: bool = False, may_fail: bool = False) -> bytes:
        """Run git in the scratch directory. `own` reads the user's configuration, which is not part of the folder."""
        places = {"GIT_DIR": "git", "GIT_WORK_TREE": "tree"}
        environment = _environment() if own else {**_environment(), "GIT_CONFIG_GLOBAL": os.devnull}
        environment |= {name: os.path.join(self._scratch, place) for name, place in places.items()}
        if arguments[0] == "cat-file":
            environment["GIT_OBJECT_DIRECTORY"] = os.path.join(self._root.path, GIT, "objects")
        return run_git(arguments, os.path.join(self._scratch, "tree"), environment, said, may_fail=may_fail)


def _environment() -> dict[str, str]:
    """Return the environment without variables that name another repository or programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    names = ("GIT_CONFIG_NOSYSTEM", "GIT_ATTR_NOSYSTEM", "GIT_NO_REPLACE_OBJECTS", "GIT_NO_LAZY_FETCH")
    closed = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return kept | dict.fromkeys(names, "1") | closed


def make(root: WorkspaceRoot) -> None:
    """Create a repository without templates, which may contain hooks."""
    arguments = ("-c", "core.hooksPath=/dev/null", "init", "--quiet", "--template=", "--", root.path)
    run_git(arguments, os.sep, _environment())


def run_git(
    arguments: Sequence[str], folder: str, environment: Mapping[str, str], said: bytes = b"", *, may_fail: bool = False
) -> bytes:
    """Run one git command. If git is missing, slow or fails, that becomes a note, not an error."""
    try:
        ended = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment,
            input=said,
            capture_output=True,
            timeout=GIT_SECONDS_MAX,
            check=False,
        )
    except FileNotFoundError as error:
        raise NotCommitted("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise NotCommitted(f"git took longer than {GIT_SECONDS_MAX:g} s") from error
    if ended.returncode and not (may_fail and ended.returncode == 1):
        why = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NotCommitted(f"git refused: {why[0] if why else ended.returncode}")
    return ended.stdout
