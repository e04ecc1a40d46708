"""The Ed25519 key of an agent: made once, kept in a file next to the store, never in the database.

A machine without the key can run the agent; its stream heads stay unsigned, and `perdure verify` reports that.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import quote

from perdure.errors import StorageFull, StoreProblem, StoreUnavailable
from perdure.platform.files import make_folder, replace_file
from perdure.store import file_of, is_embedded
from perdure.values.lazy import lazy

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from perdure.store.base import Store

SEED_BYTES = 32
_FILE_NAME_MAX = 200
_FILE_BYTES_MAX = 1024
_BESIDE = ".keys"
"""The key folder of a store file is named like the file with this suffix."""
KeySource = Callable[[str], bytes | None]
"""Returns the 32-byte seed of the named agent's key, or None."""


class SigningKey:
    """A private key. The first signature imports the `cryptography` package."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise StoreUnavailable(f"a key has {SEED_BYTES} bytes, this one {len(seed)}")
        self.seed = seed

    @lazy
    def _private(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @lazy
    def public_key(self) -> bytes:
        """The public key, 32 bytes."""
        return self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of a message."""
        return self._private.sign(message)


def is_signed_by(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature of the message is valid for the public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def file_message(digest: bytes, contents: bytes) -> bytes:
    """The signed message of an agent file: its SHA-256 and the hash of the agent's contents."""
    return b"perdure agent file " + digest + contents


def find(agent: str, folder: str | None, source: KeySource | None) -> SigningKey | None:
    """Find the agent's key: from `source`, else from `PERDURE_KEY` (hex), else from its key file."""
    if source is not None:
        seed = source(agent)
    elif text := os.environ.get("PERDURE_KEY"):
        seed = _parse_hex(text, "PERDURE_KEY")
    else:
        seed = _read_key(folder, agent)
    return SigningKey(seed) if seed is not None else None


def folder_of(store: Store) -> str | None:
    """Return the key folder of a store: next to its file; for a server `PERDURE_KEYS`, else in the home folder."""
    if not is_embedded(store.url):
        base = os.environ.get("PERDURE_KEYS") or os.path.join(os.path.expanduser("~"), ".perdure", "keys")
        return os.path.join(os.path.abspath(base), store.identity)
    path = file_of(store.url)
    return None if path is None else path + _BESIDE


def load_key(agent: str, folder: str | None) -> SigningKey | None:
    """Load the key from an agent's key file, ignoring `PERDURE_KEY` and callables."""
    seed = _read_key(folder, agent)
    return SigningKey(seed) if seed is not None else None


def refuse_another(agent: str, folder: str | None, public_key: bytes) -> None:
    """Raise if the agent's key file has a key other than the one being imported."""
    found = load_key(agent, folder)
    if found is not None and found.public_key != public_key:
        raise _wrong_key_error(agent, folder)


def discard(agent: str, folder: str | None, key: SigningKey) -> None:
    """Delete the key file of an unused key, unless it has another key by now."""
    if folder is not None and _read_key(folder, agent) == key.seed:
        os.unlink(_path(folder, agent))


def store_key(agent: str, folder: str | None, key: SigningKey) -> None:
    """Store an imported key; raise if the key file exists with another key."""
    if folder is None:
        raise StoreUnavailable("a store in memory keeps no keys", hint="give the agent key=, or import it elsewhere")
    try:
        seed = _write_once(folder, agent, key.seed)
    except OSError as error:
        raise _unkept(agent, folder, error) from error
    if seed != key.seed:
        raise _wrong_key_error(agent, folder)


def create(agent: str, folder: str | None) -> SigningKey:
    """Create a key and store it before anything refers to it; a store in memory keeps it in memory."""
    seed = os.urandom(SEED_BYTES)
    if folder is not None:
        try:
            seed = _write_once(folder, agent, seed)
        except OSError as error:
            raise _unkept(agent, folder, error) from error
    return SigningKey(seed)


def _wrong_key_error(agent: str, folder: str | None) -> StoreUnavailable:
    return StoreUnavailable(
        f"{folder} has another key for agent {agent!r}; nothing was imported",
        hint="move that file away, or give another name",
    )


def _unkept(agent: str, folder: str, error: OSError) -> StoreProblem:
    what = f"the key of agent {agent!r} cannot be kept in {folder}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(what)
    return StoreUnavailable(what, hint="make that folder writable, or give key= or PERDURE_KEY")


def _parse_hex(text: str, where: str) -> bytes:
    try:
        return bytes.fromhex(text.strip())
    except ValueError as error:
        raise StoreUnavailable(f"{where} is not a key: it has {2 * SEED_BYTES} hexadecimal digits") from error


def _path(folder: str, agent: str) -> str:
    name = quote(agent, safe="")
    if len(name) > _FILE_NAME_MAX:
        name = name[:40] + "~" + blake2b(agent.encode(), digest_size=16).hexdigest()  # "~" is in no quoted name
    return os.path.join(folder, name + ".key")


def _read_key(folder: str | None, agent: str) -> bytes | None:
    if folder is None:
        return None
    try:
        return _parse_hex(_text_of(folder, _path(folder, agent)), f"the key file of agent {agent!r}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(
            f"the key of agent {agent!r} cannot be read: {error.strerror}", hint="look at the owner of the key file"
        ) from error


def _text_of(folder: str, path: str) -> str:
    """Read a key file.

    Links next to a store are refused: a foreign store must not get its history signed with another agent's key.
    Where keys are mounted (`PERDURE_KEYS`), links are usual.
    """
    is_beside = folder.endswith(_BESIDE)
    if is_beside and (os.path.islink(folder) or os.path.islink(path)):
        raise OSError(errno.ELOOP, "it is a link", path)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if is_beside else 0)
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file", path)
        return file.read(_FILE_BYTES_MAX).decode("utf-8", "replace")


def _write_once(folder: str, agent: str, seed: bytes) -> bytes:
    """Write a seed atomically and return it; if another process wrote one first, return that."""
    make_folder(folder)
    try:
        replace_file(_path(folder, agent), seed.hex().encode() + b"\n", new=True)
    except FileExistsError:
        seed = _read_key(folder, agent) or seed
    return seed
