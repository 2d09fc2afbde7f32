"""Random names: they say nothing of what they name, and nobody guesses one."""

from __future__ import annotations

import os

TOKEN_BYTES = 32


def new_token() -> str:
    """Return 256 random bits of the operating system as 64 hexadecimal digits."""
    return os.urandom(TOKEN_BYTES).hex()
