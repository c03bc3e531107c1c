"""An audit: every claim's exact loss, what samples prove of it, a verdict at a stated error, and its three forms."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from fractions import Fraction
from importlib.metadata import version
from math import inf, log
from typing import Any

from dither.auditing.black_box import EVENTS, Tested, log_of, tested
from dither.auditing.claims import Claim, Exactly, Never, Repetition, exactly
from dither.auditing.memos import LINKED
from dither.auditing.samples import (
    Expected,
    Spread,
    expected_share,
    in_turn,
    least_share,
    least_share_of_paired,
    paired_interval,
    share_p_value,
)
from dither.writing import Fact, FactList, Heading, Page, Paragraph, Quoted
from dither_shared.frozen import frozen
from dither_shared.registry import Metric
from dither_shared.rng import SYSTEM, Rng

# An audit: every claim's exact loss, what samples prove of it, and a verdict at a stated error.

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


# The three forms of an audit: a table, one document, a page to publish.


@frozen
class Audited:
    """The subject of an audit: the page and the document name it, so that anyone can audit the same again."""

    title: str
    """The app's name, or those of adapters."""
    metrics: tuple[Metric, ...]
    day: date

    @property
    def plans(self) -> dict[str, str]:
        """The digest of each metric's plan."""
        return {metric.name: metric.plan.digest for metric in self.metrics}


LEGEND = """\
declared   the epsilon that the metric states: of a report, or, permanent, of all reports of one answer; P, a
           probability; never, for what no life of a device may show
exact      the largest loss by the exact law; = is the declared one, as a fraction. - has a reason below
proved     the loss that {reports:,} reports a side prove, or {devices:,} devices, in error once in {once:,.0f}:
           the true loss is at least as large, and may be larger
expected   the mean and the standard deviation of that bound, where the law is exact
verdict    an audit of sound mechanisms finds something once in {seldom:,.0f} audits. Not checked: there is
           neither an exact law nor a sample"""


def table(findings: Sequence[Finding], sampling: Sampling) -> str:
    """Return the table, what its columns mean, and why some laws are not exact."""
    rows: list[tuple[str, ...]] = [("metric", "what", "declared", "exact", "proved", "expected", "verdict")]
    rows += [_row(each) for each in findings]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", legend(sampling), *_linked(findings), *_notes(findings), "", summary(findings)]
    return "\n".join(lines)


def legend(sampling: Sampling) -> str:
    """Return what the columns mean."""
    return LEGEND.format(
        reports=sampling.reports, devices=sampling.devices, once=1 / sampling.alpha, seldom=1 / sampling.error
    )


def _row(each: Finding) -> tuple[str, ...]:
    return each.subject, each.part, *_figures(each), each.verdict.upper() or _sound(each)


def _sound(each: Finding) -> str:
    return "holds" if each.checked else "not checked"


def _figures(each: Finding) -> tuple[str, str, str, str]:
    """Return declared, exact, proved and expected in words."""
    if each.of_lives:
        return "never", "-", each.pair, "-"
    unit = "P " if each.exp_declared is None else ""
    expected = f"{each.expected.mean:.3f} ± {each.expected.deviation:.3f}" if each.expected else "-"
    return f"{unit}{each.declared:.6g}", _exact(each), f"{unit}{each.bound:.3f}" if each.samples else "-", expected


def _exact(each: Finding) -> str:
    loss = each.exact_loss
    if loss is None:
        return "-"
    return "no bound" if loss == inf else f"{loss:.6g}{' =' if each.equal else ''}"


def _linked(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield how many devices were linked, beside the formula."""
    for each in findings:
        if each.part == LINKED and each.hits is not None:
            yield f"{each.subject}, {each.part}: {_of_devices(each)}; by the formula {each.declared:.3f}"


def _of_devices(each: Finding) -> str:
    """Return of how many devices something held, with the interval of their share."""
    assert each.hits is not None
    low, high = paired_interval(each.hits, each.samples)
    share = each.hits / each.samples
    return f"{each.hits:,} of {each.samples:,} devices, {share:.3f} ({low:.3f} to {high:.3f} at 95 %)"


def _notes(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield why there is no exact law, and what violations are of."""
    for each in findings:
        if each.missing_reason:
            yield f"{each.subject}, {each.part}: no exact law: {each.missing_reason}"
    for each in findings:
        if each.verdict:
            yield f"{each.subject}, {each.part}: {each.verdict}: {each.pair or _worst(each)}"


def _worst(each: Finding) -> str:
    one, other = each.exact.pairs[0] if each.exact else (None, None)
    return f"{one.label} against {other.label}" if one and other else "no samples"


def summary(findings: Sequence[Finding]) -> str:
    """Return the outcome in a sentence."""
    bad = sum(bool(each.verdict) for each in findings)
    unchecked = sum(not each.checked for each in findings)
    but = f"; not checked: {unchecked}" if unchecked else ""
    if bad:
        return f"{bad} of {len(findings)} claims do not hold{but}"
    if unchecked:
        return f"{len(findings) - unchecked} of {len(findings)} claims hold{but}"
    return f"all {len(findings)} claims hold"


def document(audited: Audited, findings: Sequence[Finding], sampling: Sampling) -> dict[str, Any]:
    """Return the audit as one JSON document."""
    return {
        "audited": audited.title,
        "plans": audited.plans,
        "day": audited.day.isoformat(),
        "dither": version("dither"),
        "reports": sampling.reports,
        "devices": sampling.devices,
        "alpha": sampling.alpha,
        "error": sampling.error,
        "holds": all(each.checked and not each.verdict for each in findings),
        "findings": [_document(each) for each in findings],
    }


def _document(each: Finding) -> dict[str, Any]:
    ratio = each.exact.ratio if each.exact else None
    return {
        "metric": each.subject,
        "what": each.part,
        "unit": "probability" if each.exp_declared is None else "epsilon",
        "declared": each.declared,
        "exp_declared": str(each.exp_declared) if each.exp_declared is not None else None,
        "exact": None if each.exact_loss in (None, inf) else each.exact_loss,
        "exp_exact": None if ratio is None else str(ratio),
        "exact_is_infinite": each.exact_loss == inf,
        "exact_is_declared": each.equal,
        "exact_inputs": len(each.exact.laws) if each.exact else 0,
        "no_exact_law": each.missing_reason or None,
        "samples": each.samples,
        "proved": each.bound if each.samples else None,
        "expected": each.expected.mean if each.expected else None,
        "expected_deviation": each.expected.deviation if each.expected else None,
        "p_value": each.p_value,
        "devices": each.hits,
        "event": each.pair or None,
        "verdict": each.verdict or _sound(each),
    }


def page(audited: Audited, findings: Sequence[Finding], sampling: Sampling) -> Page:
    """Return a page to publish."""
    blocks: list[Heading | Paragraph | FactList] = []
    for subject in dict.fromkeys(each.subject for each in findings):
        blocks.append(Heading(2, (Quoted(subject),)))
        if plan := audited.plans.get(subject):
            blocks.append(Paragraph((f"The digest of its plan, {plan}, travels with every report.",)))
        blocks.append(FactList(tuple(_fact(each) for each in findings if each.subject == subject)))
    blocks += [Heading(2, ("How to read this",)), *(Paragraph((text,)) for text in _reading(sampling))]
    lead = (
        "An audit ran the code that devices run, and compared what it does with the epsilon that it declares. "
        f"In it {summary(findings)}. It ran on {audited.day.isoformat()} with dither {version('dither')}."
    )
    return Page(("An audit of ", Quoted(audited.title)), (lead,), tuple(blocks))


def _fact(each: Finding) -> Fact:
    declared, exact, proved, expected = _figures(each)
    text = [f"declared {declared}"]
    if each.exact_loss is not None:
        text.append("by its exact law just that, as a fraction" if each.equal else f"by its exact law {exact}")
    elif each.missing_reason:
        text.append(f"no exact law: {each.missing_reason}")
    if each.of_lives:
        text = [f"to be never so, and was so in {each.pair}"]
    elif each.samples:
        hoped = f" (expected {expected})" if each.expected else ""
        text.append(f"{each.samples:,} samples a side prove {proved}{hoped}")
    verdict = f"Does not hold: {each.verdict}." if each.verdict else f"{_sound(each).capitalize()}."
    pair = f" Tested: {each.pair}." if each.pair and not each.of_lives else ""
    return Fact(each.part.capitalize(), (f"{verdict} It has {'; '.join(text)}.", Quoted(pair)))


def _reading(sampling: Sampling) -> Iterator[str]:
    yield (
        "Epsilon is the logarithm of the factor by which an outcome may change the odds of one answer against another. "
        "The exact law runs the randomizer's own code once for every sequence of coins, over ideal coins."
    )
    yield (
        f"Samples prove a lower bound, in error once in {1 / sampling.alpha:,.0f}. They show that a loss is at least "
        "as large, and catch code that does not do what it should. They cannot show that no other event tells more. "
        f"All verdicts together are wrong once in {1 / sampling.error:,.0f} audits of sound mechanisms."
    )
    yield (
        "Draws and lives are of devices that live for 90 days or more. Each draw of their coins is held against the "
        "code whose law is told. Two devices to which the same happens, and which differ in their answers alone, have "
        "to send at the same times as many uploads of the same length."
    )
    yield (
        "P is of noise that should be drawn afresh: the probability that two outcomes of a device are the same. If "
        "more are, the noise comes again. In a claim of linking it is the share of devices that are linked. They are "
        "paired with each other, so two count as one sample."
    )
