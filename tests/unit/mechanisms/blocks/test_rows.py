"""The largest amounts of users in blocks are those of a dense table."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from trafficdp.mechanisms.blocks.partition import block_rows


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 5))
def test_every_user_has_its_largest_amount_in_every_block(seed, items, users):
    random = np.random.default_rng(seed)
    table = random.integers(0, 5, (items, users)) * (random.random((items, users)) < 0.6)
    block = random.integers(-2, 4, items)
    found = block_rows(sparse.csr_matrix(table), block)
    expected = [
        (user, each, int(table[block == each, user].max()))
        for user in range(users)
        for each in sorted(set(block.tolist()))
        if table[block == each, user].max() > 0
    ]
    assert list(zip(found.user.tolist(), found.block.tolist(), found.most.tolist(), strict=True)) == expected
