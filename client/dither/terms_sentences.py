"""The terms that a person is asked to agree to, in short sentences for an app's own dialog: to show, and to translate.

They say all that is agreed to (`dither_shared.terms`). `dither metrics docs` writes a page that explains it at length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dither_shared.accounting import NEARLY_CERTAIN, percent_above, recognised, sure
from dither_shared.exact import exp_of_micro, to_micro
from dither_shared.frozen import frozen
from dither_shared.measures import DAYS_KEPT, MEASURES
from dither_shared.mechanisms import DEVICES
from dither_shared.registry import Metric, Registry
from dither_shared.terms import AWAY_DAYS, DeviceTerms, Terms, evictions

VALUES_MAX = 8
"""A dialog shows so many listed values; the page of `dither metrics docs` has all."""


@frozen
class Sentence:
    """One sentence of the terms. `str()` is the English one.

    Translated, it is `_(sentence.template).format_map(sentence.facts)`, with the app's own `_`. Templates stay the
    same while dates, odds, numbers of reports and listed values change.
    """

    metric: str
    """The metric that it is about; "" where it is about all."""
    template: str
    facts: Mapping[str, str | int] = MappingProxyType({})

    def __str__(self) -> str:
        return self.template.format_map(self.facts)


def terms_of(registry: Registry) -> list[Sentence]:
    """Return the terms of a registry: of all metrics, of each, and how to refuse."""
    sentences = [Sentence("", "Your device adds random noise to each answer before anything leaves it.")]
    for metric in registry.metrics.values():
        sentences += _of_metric(metric)
    if sum(Terms.of(metric).linked > 0 for metric in registry.metrics.values()) > 1:
        sentences.append(_recognised("", "all your answers", DeviceTerms.of(registry).linked))
    everything = _sure("", "After all reports about all questions", to_micro(registry.device_epsilon))
    return [
        *sentences,
        everything,
        *([_evicted(evictions(registry).devices)] if registry.evicted else []),
        Sentence("", "You can change your mind at any time."),
        Sentence("", "Reports that were sent before cannot be called back: nobody can tell which are yours."),
    ]


def _of_metric(metric: Metric) -> Iterator[Sentence]:
    def sentence(template: str, **facts: str | int) -> Sentence:
        return Sentence(metric.name, template, MappingProxyType(facts))

    yield sentence("{question}", question=metric.question)
    if metric.measures:
        yield sentence(f"Your device itself works out {MEASURES[metric.measures].words}.")
        if metric.measures != "session_length":
            yield sentence(
                "For that it keeps the day of first use, and which of the last {kept} days had use.", kept=DAYS_KEPT
            )
        if metric.measures in ("age", "first_month"):
            yield sentence("First used means: after you first agreed to telemetry of this app.")
    yield from _answers(metric)
    yield sentence(_SENSITIVITY[metric.sensitivity])
    if metric.hidden:
        yield sentence("Whether you have an answer is hidden: a device without one sends noise, too.")
    else:
        yield sentence("It is not hidden that your device answers this.")
    days = metric.period_days
    if metric.measures:
        yield sentence(_USED[days > 1], days=days)
    yield sentence("At most one report in {days} days." if days > 1 else "At most one report a day.", days=days)
    yield sentence(_LIFE[metric.memoized, metric.charges > 1], number=metric.charges, day=metric.expires.isoformat())
    if metric.memoized:
        yield sentence("An answer that you repeat repeats its noise: reports of your device can be linked.")
        if not metric.measures:  # the month of first use stays
            yield sentence("On which day your answer changes is not hidden.")
    if cells := metric.cells.lasting:
        yield sentence("Reports show which of {groups} groups your device is in.", groups=cells)
    if linked := Terms.of(metric).linked:
        yield _recognised(metric.name, "your answer", linked)
    yield _sure(metric.name, "After one report", metric.cells.charge)
    if metric.memoized:
        yield _sure(metric.name, "After all reports of one answer", metric.charge)
    yield _sure(metric.name, "After all reports about it", metric.reservation)


_SENSITIVITY = {
    "low": "The true answer would tell little about you.",
    "medium": "The true answer would tell something about you.",
    "high": "The true answer would tell much about you.",
}

_USED = {
    False: "That a report comes tells that the app was used on that day.",
    True: "That a report comes tells that the app was used in these {days} days.",
}

_LIFE = {
    (False, False): "One report in all, before {day}.",
    (False, True): "At most {number} reports in all, before {day}.",
    (True, False): "One answer in all, before {day}: later ones repeat it.",
    (True, True): "At most {number} different answers in all, before {day}: later ones repeat the last.",
}
"""By whether answers are memoized, and whether there may be several."""


def _answers(metric: Metric) -> Iterator[Sentence]:
    """Say what can be answered: the kind's own words, with the listed values as a fact."""
    offer = metric.kind.offer(metric.asked)
    for words in offer.before:
        yield Sentence(metric.name, _literal(words))
    if offer.listed:
        shown = [*offer.listed[:VALUES_MAX], *["…"][: len(offer.listed) - VALUES_MAX]]
        values = ("; " if any("," in value for value in shown) else ", ").join(shown)
        yield Sentence(metric.name, f"{_literal(offer.lead)} {{values}}.", MappingProxyType({"values": values}))
    for words in offer.after:
        yield Sentence(metric.name, _literal(words))


def _recognised(metric: str, answer: str, linked: int) -> Sentence:
    """Say how far lasting noise tells a device from others."""
    template = (
        f"Among {{devices}} people with {answer}, about {{people}} could be recognised by what their reports repeat."
    )
    return Sentence(metric, template, MappingProxyType({"devices": DEVICES, "people": recognised(linked)}))


def _evicted(devices: int) -> Sentence:
    """Say how often in a year a browser may begin all of it anew."""
    template = (
        "In a browser all of this begins anew when what this site has kept is deleted, by you or by the browser after "
        "{days} days without a visit: up to {times} times in a year."
    )
    return Sentence("", template, MappingProxyType({"days": AWAY_DAYS, "times": devices}))


def _literal(words: str) -> str:
    """Return the template of words that have no facts."""
    return words.replace("{", "{{").replace("}", "}}")


def _sure(metric: str, after: str, micro: int) -> Sentence:
    """Say how sure anybody can become who held two answers for equally likely."""
    probability = sure(exp_of_micro(micro))
    if probability > NEARLY_CERTAIN:
        return Sentence(metric, f"{after}, a guess at your answer could be nearly certain.")
    template = f"{after}, an even guess between two answers is at most {{percent}}\N{NO-BREAK SPACE}% sure."
    return Sentence(metric, template, MappingProxyType({"percent": percent_above(probability)}))
