"""An audit: every claim's exact loss, what samples prove of it, and a verdict at a stated error."""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf, log

from dither.app_process import SYSTEM
from dither.auditing.black_box import EVENTS, Tested, log_of, tested
from dither.auditing.bounds import Expected, expected_share, least_share, least_share_of_paired, share_p_value
from dither.auditing.claims import Claim, Never, Repetition
from dither.auditing.exactness import Exactly, exactly
from dither.auditing.spreading import Spread, in_turn
from dither_shared.frozen import frozen
from dither_shared.rng import Rng

ALPHA = 0.01
"""The error of each bound that is shown."""
ERROR = 1e-6
"""The error of all verdicts of an audit together: an audit of sound mechanisms finds something once in 1 / ERROR."""


@frozen
class Sampling:
    """How much is drawn, with which coins, and at which errors."""

    reports: int
    """Samples a side of a claim about reports."""
    devices: int
    """Samples a side of a claim about whole devices."""
    alpha: float = ALPHA
    error: float = ERROR
    rng: Rng = SYSTEM
    spread: Spread = in_turn
    """The processes that draw: see `spreading`."""


@frozen
class Finding:
    """The finding on a claim."""

    subject: str
    part: str
    declared: float
    """Epsilon, or of a repetition a probability."""
    exp_declared: Fraction | None
    """e^epsilon, exactly; None of a repetition."""
    exp_own: Fraction | None
    """e^epsilon of the part's own integers, which the exact law must have; None where nothing says it."""
    exact: Exactly | None
    missing_reason: str
    """Why there is no exact law; "" where there is."""
    samples: int
    bound: float
    """The loss, or probability, that samples prove at 1 - alpha; 0 without samples."""
    expected: Expected | None
    """The bound to be expected of so many samples of the exact law; None where that is not known."""
    pair: str
    """The two inputs and the event that the bound is about."""
    verdict: str
    """"" if nothing was found, else what."""
    hits: int | None = None
    """The number of devices for which a repetition held, or of lives that showed what none may."""
    tests: tuple[Tested, ...] = ()
    """The events of a claim."""
    repeats: float | None = None
    """P[so many hits of a repetition, or more]."""

    @property
    def checked(self) -> bool:
        """Whether there was an exact law or a sample to hold it against."""
        return self.exact is not None or self.samples > 0

    @property
    def p_value(self) -> float | None:
        """The probability, at most, that samples of a sound device say so much against it; None without samples."""
        if self.tests:
            return min(1.0, EVENTS * min(each.p_value for each in self.tests))
        return self.repeats

    @property
    def of_lives(self) -> bool:
        """Whether it is on what no life may show."""
        return self.exp_declared is None and not self.declared

    @property
    def equal(self) -> bool:
        """Whether the exact loss is the one that the part's own integers declare, as a fraction."""
        return self.exact is not None and self.exact.ratio is not None and self.exact.ratio == self.exp_own

    @property
    def exact_loss(self) -> float | None:
        """The exact loss, in epsilon; None where there is none."""
        if self.exact is None:
            return None
        return inf if self.exact.ratio is None else log(self.exact.ratio)


Claims = Sequence[Claim | Repetition | Never]


def audit(
    claims: Claims,
    sampling: Sampling,
    progress: Callable[[str], None] = lambda doing: None,
) -> list[Finding]:
    """Return a finding for each claim, in order."""
    tests = sum(EVENTS if isinstance(claim, Claim) else isinstance(claim, Repetition) for claim in claims)
    each = sampling.error / max(1, tests)
    found = []
    for place, claim in enumerate(claims, 1):
        progress(f"{place} of {len(claims)}: {claim.subject}, {claim.part}")
        if isinstance(claim, Claim):
            found.append(_claim(claim, sampling, each))
        elif isinstance(claim, Repetition):
            found.append(_repetition(claim, sampling, each))
        else:
            found.append(_never(claim, sampling))
    return found


def _claim(claim: Claim, sampling: Sampling, error: float) -> Finding:
    law = exactly(claim)
    known = None if isinstance(law, str) else law
    n = sampling.devices if claim.of_devices else sampling.reports
    tests = tested(claim, known, n, sampling.alpha, sampling.rng, sampling.spread) if n else []
    best = max(tests, key=lambda one: one.bound(sampling.alpha / EVENTS), default=None)
    declared = log_of(claim.exp_epsilon)
    verdict = ""
    if known and (known.ratio is None or known.ratio > claim.exp_epsilon):
        verdict = "the exact loss is larger"
    elif any(one.bound(error) > one.epsilon for one in tests):
        verdict = "samples prove a larger loss"
    return Finding(
        claim.subject,
        claim.part,
        declared,
        claim.exp_epsilon,
        claim.exp_own,
        known,
        law if isinstance(law, str) else "",
        n,
        best.bound(sampling.alpha / EVENTS) if best else 0.0,
        next((one.expected for one in tests if one.expected), None),
        _in_words(best) if best else "",
        verdict,
        tests=tuple(tests),
    )


def _in_words(test: Tested) -> str:
    return f"{test.one} against {test.other}, {test.event}: {test.hits:,} and {test.others:,}"


def _repetition(claim: Repetition, sampling: Sampling, error: float) -> Finding:
    draws, probability = sampling.devices // claim.at_once, float(claim.probability)
    n = draws * claim.at_once
    hits = sum(sampling.spread(lambda share: sum(claim.draw(sampling.rng) for _ in range(share)), draws, claim.at_once))
    least, samples = (least_share_of_paired, n // 2) if claim.at_once > 1 else (least_share, n)
    bound = least(hits, n, sampling.alpha) if n else 0.0
    expected = expected_share(probability, samples, sampling.alpha) if n else None
    verdict = claim.worse if n and least(hits, n, error) > probability else ""
    pair = f"{hits:,} of {n:,} devices"
    chance = share_p_value(hits * samples // n, samples, probability) if n else None
    return Finding(
        claim.subject, claim.part, probability, None, None, None, "", n, bound, expected, pair, verdict, hits,
        repeats=chance,
    )  # fmt: skip


def _never(claim: Never, sampling: Sampling) -> Finding:
    n = max(claim.least, sampling.devices // claim.takes)

    def look(share: int) -> Counter[str]:
        return Counter(claim.look(sampling.rng) for _ in range(share))

    shown = sum(sampling.spread(look, n, claim.takes), Counter[str]())
    shown.pop("", None)
    verdict = shown.most_common(1)[0][0] if shown else ""
    hits = shown.total()
    bound = least_share(hits, n, sampling.alpha) if n else 0.0
    return Finding(
        claim.subject, claim.part, 0.0, None, None, None, "", n, bound, None, f"{hits:,} of {n:,} lives", verdict, hits
    )
