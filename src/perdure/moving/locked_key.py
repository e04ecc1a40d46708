"""The private key of an agent on its way: only who knows the passphrase can use it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import WrongPassphrase
from ..keys import SEED_BYTES, SigningKey
from .lines import LockedKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_COST = 1 << 15
"""Of scrypt: 32 MB and a tenth of a second for each guess."""
_BLOCKS, _LANES = 8, 1


def lock(key: SigningKey, passphrase: str, digest: bytes) -> LockedKey:
    """The key, for a file whose other lines have this digest."""
    salt, nonce = os.urandom(16), os.urandom(12)
    sealed = _cipher(passphrase, salt).encrypt(nonce, key.seed, _bound(key.public_key, digest))
    return LockedKey(salt, _COST, nonce, sealed, digest)


def unlock(locked: LockedKey, passphrase: str, public_key: bytes) -> SigningKey:
    """The key again; it must be the one of the agent in the file, and encrypted for this file."""
    from cryptography.exceptions import InvalidTag

    if locked.cost != _COST:  # more would cost its reader memory: 1 KB for each
        raise WrongPassphrase(f"the key in the file asks for a cost of {locked.cost}, which Perdure never writes")
    try:
        bound = _bound(public_key, locked.digest)
        seed = _cipher(passphrase, locked.salt).decrypt(locked.nonce, locked.sealed, bound)
    except (InvalidTag, ValueError) as error:
        raise WrongPassphrase from error
    if len(seed) != SEED_BYTES or SigningKey(seed).public_key != public_key:
        raise WrongPassphrase("the key in the file is another one than the agent's")
    return SigningKey(seed)


def _bound(public_key: bytes, digest: bytes) -> bytes:
    """What the encryption covers besides the key: in another file, or for another agent, it does not open."""
    return b"perdure agent key " + public_key + digest


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return AESGCM(Scrypt(salt, 32, _COST, _BLOCKS, _LANES).derive(passphrase.encode()))
