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
_COST_MAX = 1 << 20
_BLOCKS, _LANES = 8, 1


def lock(key: SigningKey, passphrase: str) -> LockedKey:
    """The key, for a file."""
    salt, nonce = os.urandom(16), os.urandom(12)
    return LockedKey(salt, _COST, nonce, _cipher(passphrase, salt, _COST).encrypt(nonce, key.seed, key.public_key))


def unlock(locked: LockedKey, passphrase: str, public_key: bytes) -> SigningKey:
    """The key again; it must be the one of the agent in the file."""
    from cryptography.exceptions import InvalidTag

    if not 2 <= locked.cost <= _COST_MAX or locked.cost & (locked.cost - 1):
        raise WrongPassphrase(f"the key in the file asks for a cost of {locked.cost}, which Perdure never writes")
    try:
        seed = _cipher(passphrase, locked.salt, locked.cost).decrypt(locked.nonce, locked.sealed, public_key)
    except (InvalidTag, ValueError) as error:
        raise WrongPassphrase from error
    if len(seed) != SEED_BYTES or SigningKey(seed).public_key != public_key:
        raise WrongPassphrase("the key in the file is another one than the agent's")
    return SigningKey(seed)


def _cipher(passphrase: str, salt: bytes, cost: int) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return AESGCM(Scrypt(salt, 32, cost, _BLOCKS, _LANES).derive(passphrase.encode()))
