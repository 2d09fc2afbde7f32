"""Text to numbers, column-wise, keeping apart what is missing from what cannot be read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MISSING_NUMBERS = ("", "NA", "N/A", "NULL", "NONE")
"""Texts (in any case) that say that there is no number."""

_NUMBER = r"^(?:[0-9]+\.?[0-9]*|\.[0-9]+|-[0-9]+\.?[0-9]*|-\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"


def text_to_numbers(
    text: pa.Array, *, nan_is_missing: bool = False
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the numbers of a column of text, and which of them are unreadable (both of shape (n,)).

    A number is NaN where the text is missing (null or MISSING_NUMBERS, and "NaN" when
    ``nan_is_missing``) and where it is unreadable: no plain decimal number, "NaN", or infinite. What a text
    says depends on no other text.
    """
    trimmed = pc.utf8_trim_whitespace(text)
    given = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    try:
        # of what is written without letters, Arrow reads what _NUMBER matches
        numbers = None if _has_letters(given) else pc.cast(given, pa.float64())
    except pa.ArrowInvalid:
        numbers = None
    if numbers is None:
        plain = pc.if_else(pc.starts_with(given, "+"), pc.utf8_slice_codeunits(given, 1), given)
        upper = pc.utf8_upper(given)
        missing = ("NAN", *MISSING_NUMBERS) if nan_is_missing else MISSING_NUMBERS
        given = pc.if_else(pc.is_in(upper, value_set=pa.array(missing)), pa.scalar(None, pa.string()), given)
        readable = pc.match_substring_regex(plain, _NUMBER)
        numbers = pc.cast(pc.if_else(readable, plain, pa.scalar(None, pa.string())), pa.float64())
    return _finite(given, numbers, nan_is_missing=nan_is_missing)


def _has_letters(text: pa.Array) -> bool:
    data = text.buffers()[2]
    return data is not None and bool((np.frombuffer(data, np.uint8) >= ord("A")).any())


def numeric_to_numbers(column: pa.Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the same for a column of numbers: null is missing, NaN and infinite are unreadable."""
    numbers = pc.cast(column, pa.float64(), safe=False)
    return _finite(column, numbers, nan_is_missing=False)


def _finite(
    given: pa.Array, numbers: pa.Array, *, nan_is_missing: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    values = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False).copy()
    present = pc.is_valid(given).to_numpy(zero_copy_only=False)
    unreadable = present & ~np.isfinite(values)
    if nan_is_missing:
        stated_nan = pc.fill_null(pc.is_nan(numbers), False).to_numpy(zero_copy_only=False)
        unreadable &= ~stated_nan
    values[~np.isfinite(values)] = np.nan
    return values, unreadable.astype(np.bool_)
