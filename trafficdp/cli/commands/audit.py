"""`trafficdp audit`: what draws on neighbouring data sets prove about epsilon. No store is needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

import typer

from trafficdp.audit import lower_bound as audit_lower_bound
from trafficdp.audit.neighbours import ranked_neighbours
from trafficdp.audit.releases import AuditedRelease, audited_releases
from trafficdp.audit.wrong import Mistake, mistakes
from trafficdp.cli.options import Output, Settings
from trafficdp.cli.plan_words import MechanismName
from trafficdp.errors import UsageError, VerificationError, did_you_mean, in_range, positive
from trafficdp.measurement.sets import Ranks
from trafficdp.mechanisms.per_statistic_map import MECHANISMS
from trafficdp.mechanisms.protocol import ClaimedScores, Mechanism
from trafficdp.model import ContributionBound, Schema, SpeedUnit, Statistic, as_json
from trafficdp.noise.source import NoiseSource, SecureNoise, SimulatedNoise
from trafficdp.privacy.conversion import pure_to_zcdp, zcdp_to_approx
from trafficdp.privacy.loss import LossKind, PureDP

BOUND = ContributionBound(Fraction(64), Fraction(1), SpeedUnit.KILOMETRES_PER_HOUR)
"""Speeds of the simulated vehicles: 0 to 64 whole km/h."""
DELTA = 0.01
"""At which zCDP mechanisms are audited: they get the rho that a pure epsilon implies. The larger delta is,
the less is claimed, and so few draws could never refute what follows at 10^-6."""
MOST_WHOLE_RUNS = 4_000
"""What looks at all vehicles together runs once a draw."""
OF_CHOICES = 4
"""So many times as many draws of what chooses: that which tells most is seldom chosen."""
Claimant = Mechanism | Mistake | AuditedRelease
VERDICTS = {
    "keeps": ("keeps", "the draws do not refute the claim"),
    "refuted": ("REFUTED", "the draws refute the claim: a bug"),
    "caught": ("CAUGHT", "wrong on purpose, and the draws show it"),
    "not_caught": ("not caught", "wrong on purpose, but these draws are too few to show it"),
}
"""How each is shown, and what it means."""
CLAIMED, MISTAKEN = ["keeps", "refuted"], ["caught", "not_caught"]


@dataclass(frozen=True, kw_only=True)
class FindingFacts:
    """One audit. ``claim``: the epsilon that is claimed for one bin (of what counts in rho: the epsilon at
    ``delta`` of the rho that the epsilon asked for implies); 0 where a mechanism declines every bin.
    ``lower_bound``: epsilon is at least this, with the ``confidence``, by so many ``draws`` on each of the
    two simulated data sets ``pair``, at the ``event`` whose probabilities differ most."""

    SCHEMA: ClassVar = Schema(
        {
            "if": {"properties": {"wrong_on_purpose": {"const": True}}},
            "then": {"properties": {"verdict": {"enum": MISTAKEN}, "statistic": {"type": "null"}}},
            "else": {"properties": {"verdict": {"enum": CLAIMED}, "statistic": {"type": "string"}}},
        }
    )

    name: MechanismName
    statistic: Statistic | None
    claim: Annotated[float, Schema(minimum=0)]
    delta: Annotated[float, Schema(minimum=0, exclusiveMaximum=1)]
    lower_bound: Annotated[float, Schema(minimum=0)]
    draws: Annotated[int, Schema(minimum=1)]
    confidence: Annotated[float, Schema(exclusiveMinimum=0, exclusiveMaximum=1)]
    wrong_on_purpose: bool
    verdict: Annotated[str, Schema(enum=[*CLAIMED, *MISTAKEN])]
    pair: str
    event: str


@dataclass(frozen=True, kw_only=True)
class AuditFacts:
    """Every object is closed: a property that is not named here is an error."""

    findings: Annotated[tuple[FindingFacts, ...], Schema(minItems=1)]


def audit(
    context: typer.Context,
    mechanism: Annotated[
        str | None, typer.Argument(help="A mechanism, a release, or what is wrong on purpose; see --all.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, in one table.")] = False,
    epsilon: Annotated[float, typer.Option(help="The epsilon that is claimed for one bin.")] = 1.0,
    draws: Annotated[
        int,
        typer.Option(min=100, max=10**7, help="Draws on each data set; four times as many of what chooses."),
    ] = 20_000,
    confidence: Annotated[float, typer.Option(help="Confidence of each lower bound.")] = 0.999,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 1,
    secure: Annotated[bool, typer.Option("--secure", help="Draw as a release does: slower.")] = False,
) -> None:
    """Bound epsilon from below by draws on data sets that differ in one vehicle. No store is needed."""
    settings: Settings = context.obj
    positive(epsilon=epsilon)
    in_range(0, 1, confidence=confidence)
    chosen = _chosen(mechanism, everything, epsilon)
    findings = []
    for claimant in chosen:
        # the same draws whatever was audited before it
        noise: NoiseSource = SecureNoise() if secure else SimulatedNoise(seed)
        with settings.output.spinner(f"auditing {slug(claimant.name)}"):
            findings += _findings(claimant, epsilon, noise, draws, confidence)
    settings.output.result(as_json(AuditFacts(findings=tuple(findings))))
    show(settings.output, findings)
    refuted = [finding.name for finding in findings if finding.verdict == "refuted"]
    if refuted:
        raise VerificationError(
            "an epsilon is refuted", got=", ".join(refuted), todo="release nothing with it and report a bug"
        )


def slug(name: str) -> str:
    """Return ``name`` in lower case, with one underscore for all between letters and digits."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _chosen(name: str | None, everything: bool, epsilon: float) -> list[Claimant]:
    releases = audited_releases(BOUND, PureDP.of(epsilon), DELTA)
    everyone: list[Claimant] = [*MECHANISMS, *mistakes(BOUND), *releases]
    known = {slug(one.name): one for one in everyone}
    if everything and name is None:
        return list(known.values())
    if name is None or everything:
        raise UsageError(
            "which mechanism?", expected="one name, or --all", todo="see `trafficdp audit --help`"
        )
    if name not in known:
        raise UsageError(
            "unknown mechanism",
            got=f"{name:.60}",
            expected="one of " + ", ".join(known),
            todo=did_you_mean(name, known),
        )
    return [known[name]]


def _findings(
    claimant: Claimant, epsilon: float, noise: NoiseSource, draws: int, confidence: float
) -> list[FindingFacts]:
    found: list[tuple[Statistic | None, audit_lower_bound.LowerBound]] = []
    if isinstance(claimant, Mistake | AuditedRelease):
        claim, delta = claimant.claim, claimant.delta
        drawn = claimant.wrong if isinstance(claimant, Mistake) else claimant.draws
        bound = audit_lower_bound.audit_draws(
            drawn, claimant.pairs, noise, draws=draws, confidence=confidence, delta=delta
        )
        found.append((None, bound))
    else:
        given, claim, delta = epsilon, epsilon, 0.0
        most = draws
        if claimant.kind is LossKind.ZCDP:
            rho = pure_to_zcdp(PureDP.of(epsilon))
            given, claim, delta = float(rho.exact), float(zcdp_to_approx(rho, DELTA).epsilon), DELTA
            most = min(draws, MOST_WHOLE_RUNS) if audit_lower_bound.runs_one_at_a_time(claimant) else draws
        pairs = ranked_neighbours(BOUND)
        for statistic in claimant.statistics:
            rare = claimant.kind is LossKind.PURE and audit_lower_bound.has_lossy_step(
                claimant, statistic, given, pairs, Ranks, ClaimedScores
            )
            bound = audit_lower_bound.audit_mechanism(
                claimant,
                statistic,
                given,
                BOUND,
                noise,
                delta=delta,
                draws=most * (OF_CHOICES if rare else 1),
                confidence=confidence,
            )
            found.append((statistic, bound))
    mistake = isinstance(claimant, Mistake)
    return [
        FindingFacts(
            name=slug(claimant.name),
            statistic=statistic,
            claim=claim,
            delta=delta,
            lower_bound=bound.epsilon,
            draws=bound.draws,
            confidence=bound.confidence,
            wrong_on_purpose=mistake,
            verdict=MISTAKEN[bound.epsilon <= claim] if mistake else CLAIMED[bound.epsilon > claim],
            pair=bound.label,
            event=bound.event,
        )
        for statistic, bound in found
    ]


def show(output: Output, findings: list[FindingFacts]) -> None:
    """Print the findings for people."""
    output.table(
        "Claimed epsilon, and what draws prove it to be at least",
        ["mechanism", "statistic", "claimed", "delta", "at least", "draws", "confidence", "verdict"],
        [
            [
                finding.name,
                finding.statistic or "",
                f"{finding.claim:.4g}",
                f"{finding.delta:g}",
                f"{finding.lower_bound:.4f}",
                finding.draws,
                f"{finding.confidence:g}",
                VERDICTS[finding.verdict][0],
            ]
            for finding in findings
        ],
    )
    for verdict, (shown, meaning) in VERDICTS.items():
        if any(finding.verdict == verdict for finding in findings):
            output.say(f"{shown}: {meaning}.")
    output.say("A bound below the claim does not prove it: the proofs are in the mechanisms' files.")
