"""Every branch of every mechanism runs in the audits: what never runs there, no draw can refute.

Every line, but for refusals, and both sides of every `np.where`, in whatever a mechanism of the registry runs
of `trafficdp/mechanisms` and `trafficdp/bounding`. That each choice and each sum costs something on a pair of
its own is asserted with the audit of steps: `test_mechanisms.py`.
"""

import ast
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from step_audits import busy_neighbours

import trafficdp
from trafficdp.audit.lower_bound import AGREEING_RECORDS
from trafficdp.audit.neighbours import agreeing_neighbours, extreme_neighbours
from trafficdp.mechanisms.per_statistic_map import MECHANISMS, mechanism_named
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind

ROOMS = tuple(str(Path(trafficdp.__file__).parent / room) for room in ("mechanisms", "bounding"))
NEVER = {
    "return np.zeros(counts.bins)": "an infinite rho has no noise",
    "return _per_bin(counts, total) / counts.samples_per_bin": "an infinite rho has no noise",
    "np.isinf(": "an infinite epsilon has no noise",
    "np.where(noiseless,": "an infinite epsilon has no noise",
    "np.where(np.isfinite(loss),": "an infinite epsilon has no noise",
    "np.where(finite,": "an infinite epsilon has no noise",
    "guaranteed_width(": "no mechanism of the registry is `guaranteed`",
    "arrays.fill, arrays.array_bin, len(lattice.top)": "the same",
    "np.where(self.shift < 0,": "the sums of one bin need no spacing",
    "np.where(balanced,": "one bin is balanced or it is not",
    "np.where(steep > 0,": "against dividing by 0: the gradient of Huber's loss has both signs",
    "np.where(np.abs(step) <=": "a guard of rounding",
}
"""What an audit need not run, and why."""


class Branches:
    """What runs of ``ROOMS``: lines of every function, and the sides of every `np.where` (file, line)."""

    def __init__(self):
        self.missing, self.sides, self.where = {}, {}, np.where

    def call(self, frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(ROOMS):
            return None
        missing = self.missing.setdefault(code, lines_of(code))

        def line(frame, event, argument):
            missing.discard(frame.f_lineno)
            return line

        return line if missing else None

    def both(self, condition, *choices):
        caller = sys._getframe(1)
        if choices and caller.f_code.co_filename.startswith(ROOMS):
            seen = self.sides.setdefault((caller.f_code.co_filename, caller.f_lineno), set())
            seen.update(np.unique(np.asarray(condition, dtype=bool)).tolist())
        return self.where(condition, *choices)

    def never_run(self):
        """Lines, as they are written."""
        found = {(code.co_filename, number) for code, missing in self.missing.items() for number in missing}
        found |= {place for place, seen in self.sides.items() if len(seen) < 2}
        return {source(file)[number - 1].strip() for file, number in found}


@cache
def source(file):
    return Path(file).read_text(encoding="utf-8").split("\n")


@cache
def refusals(file):
    """Numbers of the lines that raise an error."""
    raised = (node for node in ast.walk(ast.parse("\n".join(source(file)))) if isinstance(node, ast.Raise))
    return {number for node in raised for number in range(node.lineno, node.end_lineno + 1)}


def lines_of(code):
    """Numbers of all lines of a function but its first and its refusals."""
    numbers = {number for _, _, number in code.co_lines() if number}
    return numbers - {code.co_firstlineno} - refusals(code.co_filename)


def audited(mechanism, bound):
    """Losses, and the data sets that the audits draw from at each."""
    if mechanism.kind is LossKind.ZCDP:
        return [(np.array(1.0), busy_neighbours(bound))]
    many = []
    if mechanism.idealised:
        many = agreeing_neighbours(bound, 150, AGREEING_RECORDS)[1:]
        many += agreeing_neighbours(bound, 150, AGREEING_RECORDS, more=4)[1:2]
    return [
        (np.full(1, 1.0), [*extreme_neighbours(bound), *many]),
        (np.full(1, 3.0), busy_neighbours(bound)),
    ]


def never_run(mechanisms, data_sets, bound, monkeypatch, sides=2):
    """What of the mechanisms runs on none of ``data_sets(mechanism, bound)``."""
    branches, before = Branches(), sys.gettrace()
    with monkeypatch.context() as patch:
        patch.setattr(np, "where", branches.both)
        sys.settrace(branches.call)
        try:
            for mechanism in mechanisms:
                for loss, pairs in data_sets(mechanism, bound):
                    for statistic in mechanism.statistics:
                        for pair in pairs:
                            for side in (pair.left, pair.right)[:sides]:
                                mechanism.estimate(side, statistic, loss, SimulatedNoise(1))
        finally:
            sys.settrace(before)
    return branches.never_run()


@pytest.mark.slow
@pytest.mark.parametrize("sides", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_every_branch_of_every_mechanism_runs_in_the_audits(bound_of, monkeypatch, sides):
    never = never_run(MECHANISMS, audited, bound_of(64), monkeypatch, sides)
    assert not {line for line in never if not any(known in line for known in NEVER)}
    # what is named above is still so
    assert not {known for known in NEVER if not any(known in line for line in never)}


def test_a_branch_that_no_data_set_takes_is_seen(bound_of, monkeypatch):
    """Few vehicles are never released by Huber, nor does anything choose an interval for few records."""
    few = [(np.full(1, 1.0), extreme_neighbours(bound_of(64))[:2])]
    own = [mechanism_named(name, LossKind.PURE) for name in ("huber", "two_stage")]
    never = never_run(own, lambda *_: few, bound_of(64), monkeypatch)
    assert "centre = bounding_huber.huber_location(" in never
    assert "low, high = np.where(whole, 0, low), np.where(whole, bound.upper_steps, high)" in never
