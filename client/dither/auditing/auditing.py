"""An audit: every claim's exact loss, what samples prove of it, and a verdict at a stated error."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf, log

from dither.auditing.black_box import EVENTS, Tested, tested
from dither.auditing.bounds import Expected, expected_share, least_share, least_share_of_paired
from dither.auditing.claims import Claim, Repetition
from dither.auditing.exactness import Exactly, exactly
from dither.auditing.spreading import Spread, in_turn
from dither.randomness import SYSTEM
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
    why_not: str
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
    """The number of devices for which a repetition held."""

    @property
    def checked(self) -> bool:
        """Whether there was an exact law or a sample to hold it against."""
        return self.exact is not None or self.samples > 0

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


def audit(
    claims: Sequence[Claim | Repetition],
    sampling: Sampling,
    progress: Callable[[str], None] = lambda doing: None,
) -> list[Finding]:
    """Return a finding for each claim, in order."""
    tests = sum(EVENTS if isinstance(claim, Claim) else 1 for claim in claims)
    found = []
    for place, claim in enumerate(claims, 1):
        progress(f"{place} of {len(claims)}: {claim.subject}, {claim.part}")
        each = sampling.error / tests
        found.append(_claim(claim, sampling, each) if isinstance(claim, Claim) else _repetition(claim, sampling, each))
    return found


def _claim(claim: Claim, sampling: Sampling, error: float) -> Finding:
    law = exactly(claim)
    known = None if isinstance(law, str) else law
    n = sampling.devices if claim.of_devices else sampling.reports
    tests = tested(claim, known, n, sampling.alpha, sampling.rng, sampling.spread) if n else []
    best = max(tests, key=lambda one: one.bound(sampling.alpha / EVENTS), default=None)
    declared = _log(claim.exp_epsilon)
    verdict = ""
    if known and (known.ratio is None or known.ratio > claim.exp_epsilon):
        verdict = "the exact loss is larger"
    elif any(one.bound(error) > declared for one in tests):
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
    )


def _log(ratio: Fraction) -> float:
    return log(ratio.numerator) - log(ratio.denominator)


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
    return Finding(
        claim.subject, claim.part, probability, None, None, None, "", n, bound, expected, pair, verdict, hits
    )
