"""What a rehearsal reads in place of records: nothing."""

from __future__ import annotations

from typing import NoReturn

from trafficdp.errors import UsageError
from trafficdp.sensitive.values import Samples


def none_there() -> Samples:
    """Raise UsageError: a store of sums has no single speed."""
    raise UsageError(
        "this store holds sums from a cluster, and the mechanism needs every single speed",
        todo='choose another mechanism, such as "baseline", or ingest the files into a store of records',
    )


def unread() -> NoReturn:
    """Raise TypeError: no value is read before the charge."""
    raise TypeError("a rehearsal reads no value")
