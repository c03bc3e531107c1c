"""The three forms of an audit: a table, one document, a page to publish."""

from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import version
from math import inf
from typing import Any

from dither.auditing.auditing import Finding, Sampling
from dither.auditing.bounds import paired_interval
from dither.auditing.linking import LINKED
from dither.writing.page import Fact, FactList, Heading, Page, Paragraph, Quoted
from dither_shared.frozen import frozen
from dither_shared.registry import Metric


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
