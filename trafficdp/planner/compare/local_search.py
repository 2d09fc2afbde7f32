"""Fewer bins a user by exchange: augmenting paths over the suppressions that a fixed cap a bin allows.

With caps fixed, bin g must lose the users with more than cap_g samples and may lose others while it loses
at most room_g samples in all: a matching of users to bins with weights. To take user l out of one more
bin when every bin is full, another user, who can afford that bin, goes back into it; or one who
cannot, but can be taken out of a third bin in turn, and so on: breadth-first, shortest exchange first.
Every step keeps every bin below its ceiling, so every state is a valid suppression.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from trafficdp.model import Counts

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def exchange(counts: Counts, cap: IntArray, room: IntArray, kept: BoolArray, target: int) -> BoolArray:
    """Return a suppression with the most bins of a user as near to ``target`` as exchanges get.

    ``kept`` (P,) must obey ``cap`` and ``room`` (G,): no kept count above the cap, no more dropped samples
    than the room. Users above the target are taken out of bins while there is an exchange; where none is
    left the target rises by one, until it is met. Deterministic.
    """
    search = _Search(counts, cap, room, kept)
    while True:
        over = np.flatnonzero(search.left > target)
        if not len(over):
            return search.kept
        for user in over[np.argsort(-search.left[over], kind="stable")].tolist():
            while search.left[user] > target and search.take_out(user, target):
                pass
        target += 1


class _Search:
    def __init__(self, counts: Counts, cap: IntArray, room: IntArray, kept: BoolArray) -> None:
        self._bin, self._user, self._count = counts.bin_index, counts.user_index, counts.count
        self.kept = kept.copy()
        self._forced = self._count > cap[self._bin]
        dropped = np.bincount(
            self._bin[~kept], weights=self._count[~kept].astype(np.float64), minlength=counts.bins
        )
        self._slack = room - dropped.astype(np.int64)
        self.left = np.bincount(self._user[kept], minlength=counts.users).astype(np.int64)
        self._order = np.argsort(self._user, kind="stable")
        self._ends = np.concatenate([[0], np.cumsum(counts.bins_per_user)])
        self._starts = np.searchsorted(self._bin, np.arange(counts.bins + 1))

    def take_out(self, user: int, target: int) -> bool:
        """Take ``user`` out of one more bin, by the shortest exchange; False when none is found.

        No bin is used twice on a way, so that what each exchange needs is still there when it is made.
        """
        # a user reached: the pair that is dropped for it, and its own that comes back
        parent: dict[int, tuple[int, int]] = {user: (-1, -1)}
        used: set[int] = set()
        queue = deque([user])
        while queue:
            current = queue.popleft()
            pairs = self._order[self._ends[current] : self._ends[current + 1]]
            pairs = pairs[self.kept[pairs]]
            need = self._count[pairs] - self._slack[self._bin[pairs]]
            way = self._bins_on_the_way(current, parent)
            for pair in pairs[need <= 0].tolist():
                if int(self._bin[pair]) not in way:
                    self._flip(pair, kept=False)
                    self._carry_on(current, parent)
                    return True
            for pair, short in zip(pairs.tolist(), need.tolist(), strict=True):
                if int(self._bin[pair]) in used or short <= 0:
                    continue
                used.add(int(self._bin[pair]))
                back = self._may_return(pair, short)
                owners = self._user[back]
                can = np.flatnonzero(self.left[owners] < target)
                if len(can):
                    self._swap(pair, int(back[can[0]]))
                    self._carry_on(current, parent)
                    return True
                for pair_back, owner in zip(back.tolist(), owners.tolist(), strict=True):
                    if owner not in parent:
                        parent[owner] = (pair, pair_back)
                        queue.append(owner)
        return False

    def _may_return(self, pair: int, short: int) -> IntArray:
        """Dropped pairs of the same bin, under its cap, that make room for ``short`` samples."""
        start, end = self._starts[self._bin[pair]], self._starts[self._bin[pair] + 1]
        free = ~self.kept[start:end] & ~self._forced[start:end] & (self._count[start:end] >= short)
        back: IntArray = np.flatnonzero(free) + start
        return back

    def _bins_on_the_way(self, user: int, parent: dict[int, tuple[int, int]]) -> set[int]:
        bins = set()
        while (pair := parent[user][0]) >= 0:
            bins.add(int(self._bin[pair]))
            user = int(self._user[pair])
        return bins

    def _carry_on(self, user: int, parent: dict[int, tuple[int, int]]) -> None:
        """Walk back: ``user`` was reached by going back into a bin for the drop of the one before."""
        while True:
            pair, back = parent[user]
            if pair < 0:
                return
            self._swap(pair, back)
            user = int(self._user[pair])

    def _swap(self, pair: int, back: int) -> None:
        self._flip(back, kept=True)
        self._flip(pair, kept=False)

    def _flip(self, pair: int, *, kept: bool) -> None:
        self.kept[pair] = kept
        sign = 1 if kept else -1
        self.left[self._user[pair]] += sign
        self._slack[self._bin[pair]] += sign * self._count[pair]
