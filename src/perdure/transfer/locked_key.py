"""Encrypts the private key of an agent in a file with a passphrase."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from perdure.errors import WrongPassphrase
from perdure.journal.keys import SEED_BYTES, SigningKey
from perdure.transfer.file_format import LockedKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_COST = 1 << 15
"""The cost of scrypt: 32 MB and a tenth of a second for each guess."""
_BLOCKS, _LANES = 8, 1


def lock(key: SigningKey, passphrase: str, digest: bytes) -> LockedKey:
    """Encrypt a key for a file whose other lines have this digest."""
    salt, nonce = os.urandom(16), os.urandom(12)
    sealed = _cipher(passphrase, salt).encrypt(nonce, key.seed, _bind_to_file(key.public_key, digest))
    return LockedKey(salt, _COST, nonce, sealed, digest)


def unlock(locked: LockedKey, passphrase: str, public_key: bytes) -> SigningKey:
    """Decrypt a key. It must belong to the file's agent, and be encrypted for this file."""
    from cryptography.exceptions import InvalidTag

    if locked.cost != _COST:  # a higher cost would exhaust the reader's memory: 1 KB each
        raise WrongPassphrase(f"the key in the file asks for a cost of {locked.cost}, which Perdure never writes")
    try:
        bound = _bind_to_file(public_key, locked.digest)
        seed = _cipher(passphrase, locked.salt).decrypt(locked.nonce, locked.sealed, bound)
    except (InvalidTag, ValueError) as error:
        raise WrongPassphrase from error
    if len(seed) != SEED_BYTES or SigningKey(seed).public_key != public_key:
        raise WrongPassphrase("the key in the file is not the agent's")
    return SigningKey(seed)


def _bind_to_file(public_key: bytes, digest: bytes) -> bytes:
    """Return the authenticated data: in another file or for another agent, the key does not decrypt."""
    return b"perdure agent key " + public_key + digest


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return AESGCM(Scrypt(salt, 32, _COST, _BLOCKS, _LANES).derive(passphrase.encode()))
