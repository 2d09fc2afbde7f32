"""Columns as text, each different value written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def texts_of(column: pd.Series, written: Callable[[object], str]) -> list[str]:
    """Return what ``written`` makes of every value of ``column``; of what is missing, of None.

    Zero has no sign.
    """
    import pandas as pd

    plain = column.to_numpy() + 0.0 if column.dtype == np.float64 else column
    place, different = pd.factorize(plain)
    # the last of them is that of missing values, whose place is -1
    texts = [*(written(each) for each in different.tolist()), written(None)]
    found: list[str] = np.array(texts, dtype=object)[place].tolist()
    return found
