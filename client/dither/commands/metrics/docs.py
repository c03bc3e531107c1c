"""`dither metrics docs`: the page that an app shows its users: what is asked, what it can cost, how to refuse."""

from __future__ import annotations

import argparse
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

from dither.device.recording import answers_always
from dither.writing import Code, Fact, FactList, Heading, Page, Paragraph, Quoted, to_html, to_markdown
from dither_shared.accounting import recognised
from dither_shared.domains import NONE
from dither_shared.exact import from_micro, to_micro
from dither_shared.measures import DAYS_KEPT, MEASURES
from dither_shared.mechanisms import DEVICES
from dither_shared.registry import Metric, Registry
from dither_shared.safe_output import write
from dither_shared.terms import DeviceTerms, Terms

SUMMARY = "write the page that tells an app's users what is asked, how it is protected and how to refuse"
EXAMPLE = "dither metrics docs metrics.toml --out telemetry.html"

VALUES_IN_TEXT_MAX, CHARACTERS_IN_TEXT_MAX = 8, 600
VALUES_MAX = 200
"""A page shows the first so many of a longer list, and how many more there are."""

_FORMATS = {"html": to_html, "markdown": to_markdown}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("registry", metavar="REGISTRY", type=Path, help="the app's metrics.toml")
    parser.add_argument("--format", choices=_FORMATS, default="html", help="%(default)s unless told otherwise")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write to this file instead of to stdout")


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    write(_FORMATS[args.format](page(Registry.load(args.registry))), args.out)
    return 0


def page(registry: Registry) -> Page:
    """Return what users are told of a registry."""
    metrics = list(registry.metrics.values())
    return Page(
        title=("What ", Quoted(registry.app), " asks"),
        lead=(
            f"This app asks {_count(len(metrics), 'question')}. Your device adds noise to each answer before anything "
            "leaves it, so what arrives may be true or made up by chance, and nobody can be certain which, the app's "
            "makers included. Only what many devices say together can be told. How much the reports of one device can "
            "tell at most is stated with each question.",
        ),
        blocks=(
            Heading(2, ("The questions",)),
            *(block for metric in metrics for block in _question(metric)),
            Heading(2, ("What the numbers mean",)),
            *_numbers(registry),
            Heading(2, ("What leaves your device",)),
            *_sent(registry),
            Heading(2, ("What can be seen",)),
            *_seen(registry),
            Heading(2, ("How to refuse",)),
            *_refusing(),
        ),
    )


def _question(metric: Metric) -> tuple[Heading, FactList]:
    return Heading(3, (Quoted(metric.question),)), FactList(
        (
            *_measured(metric),
            _answers(metric),
            *_noise(metric),
            Fact("Whether you answer", (f"{_PUBLIC}." if metric.measures else _PRESENCE[metric.presence],)),
            Fact("How often", (_period(metric),)),
            Fact("Until", (f"{metric.expires}. Then devices say nothing more about it.",)),
            Fact(
                "Sensitivity", (f"{metric.sensitivity.capitalize()}: how much your true answer would tell about you.",)
            ),
            Fact("Who answers for it", (Quoted(", ".join(metric.owners)),)),
            Fact("Name", (Code(metric.name),)),
        )
    )


def _measured(metric: Metric) -> tuple[Fact, ...]:
    """Say what the device itself works out, what it keeps for that, and what a report's coming tells."""
    if not metric.measures:
        return ()
    kept = (
        f" For that it keeps the day on which the app was first used, and on which of the last {DAYS_KEPT} days it was "
        "used; all of it goes when you have everything forgotten, and which days these are is never sent."
    )
    if metric.measures in ("age", "first_month"):
        kept += " First used means: after you first agreed to telemetry of this app, or since everything was forgotten."
    words = f"Your device itself works out {MEASURES[metric.measures].words}; the app says nothing."
    tells = " That a report comes tells that the app was used in that period."
    return (Fact("Who answers", (words + kept * (metric.measures != "session_length") + tells,)),)


def _answers(metric: Metric) -> Fact:
    """Say what can be answered; of a long list the values are folded away."""
    offer = metric.kind.offer(metric.asked)
    before, listed, after = " ".join(offer.before), offer.listed, "".join(f" {each}" for each in offer.after)
    if not listed:
        return Fact("You can say", (before + after,))
    number = _count(len(listed), offer.noun)
    start = f"{before} {offer.lead} {number}".lstrip()
    if len(listed) <= VALUES_IN_TEXT_MAX and sum(map(len, listed)) <= CHARACTERS_IN_TEXT_MAX:
        quoted = [part for value in listed for part in (", “", Quoted(value), "”")]
        return Fact("You can say", (f"{start}: “", *quoted[1:], f".{after}"))
    first = f"the first {VALUES_MAX:,} of " if len(listed) > VALUES_MAX else "the "
    return Fact("You can say", (f"{start}.{after}",), f"Show {first}{number}", listed[:VALUES_MAX])


def _noise(metric: Metric) -> tuple[Fact, ...]:
    """Say how the noise is drawn, and how much can be told of a report, of a repeated answer, and ever."""
    factor = _factor(metric.cells.charge)
    report = (
        f"It changes the odds of one answer against another by {factor}. This holds whatever anybody believed before."
    )
    life = f"At most {_count(metric.charges, 'report')}, together {_factor(metric.reservation)}."
    if not metric.memoized:
        return (
            Fact("Noise", ("Drawn anew for every report.",)),
            Fact("One report", (report,)),
            Fact("Your device's life", (life,)),
        )
    noise = (
        "Drawn once for each different answer and kept. Each report is a copy of it with more noise. So an answer, "
        "however often repeated, never tells more than that one draw."
        + " The day on which your answer changes is not hidden."
        * (not metric.measures)
    )
    life = f"At most {_count(metric.charges, 'different answer')}, together {_factor(metric.reservation)}."
    return (
        Fact("Noise", (noise,)),
        Fact("One report", (report,)),
        Fact("Repeating an answer", (f"All its reports together: {_factor(metric.charge)}.",)),
        Fact("Recognising your device", (f"{_recognised('answer', Terms.of(metric).linked)}.",)),
        Fact("Your device's life", (f"{life} After these the last one is repeated, whatever your answer.",)),
    )


def _recognised(answers: str, linked: int) -> str:
    """Say how far lasting noise tells a device from others."""
    return (
        f"Among {DEVICES} people with your {answers}, about {recognised(linked)} could be recognised by whoever keeps "
        "all reports: the noise that a device keeps is a mark, which many or few devices share"
    )


_PUBLIC = "Not hidden. A report shows that your device answers this question"
_PRESENCE = {
    "public": f"{_PUBLIC}, which should tell nothing about you.",
    "hidden": f"Hidden. A device with nothing to say answers “{NONE}”, with noise like any other answer, and nothing "
    "leaves before the period is over in which it was said.",
}


def _period(metric: Metric) -> str:
    often = "once a day" if metric.period_days == 1 else f"once in {metric.period_days} days"
    when = "" if answers_always(metric) else ", at times drawn by lot in advance"
    return f"At most {often}{when}. Days are those of UTC."


def _numbers(registry: Registry) -> tuple[Paragraph, ...]:
    return _paragraphs(
        "Epsilon measures how much can be told at most, whatever anybody knew before and whoever they are. A factor of "
        "1 would tell nothing. A factor of 3 takes even odds, 50\N{NO-BREAK SPACE}%, to 75\N{NO-BREAK SPACE}% at most: "
        "who held two answers of yours for equally likely can be that sure of one of them afterwards. The epsilons of "
        "several reports add up, which is why their number is limited.",
        "All questions together, those of other versions of the app included, change the odds by "
        f"{_factor(to_micro(registry.device_epsilon))}. Your device keeps count, and goes further only if you agree.",
    )


def _sent(registry: Registry) -> tuple[Paragraph, ...]:
    cohorts = max(metric.cells.lasting for metric in registry.metrics.values())
    what = "Noisy answers, and which questions they answer."
    if cohorts:
        what += (
            f" With answers to some questions goes a number from 0 to {cohorts - 1}, which your device draws once and "
            "keeps; many devices have the same."
        )
    what += " Each upload has a random number of its own, so that one that had to be sent twice counts once."
    if registry.quiet_days:
        what += f" A new device says nothing in its first {_count(registry.quiet_days, 'day')}."
    return _paragraphs(
        what,
        "Never sent are an answer without noise, a name or number that stands for you or your device, cookies, the "
        "time by your clock, your language or your place.",
    )


def _seen(registry: Registry) -> tuple[Paragraph, ...]:
    memoized = any(metric.memoized for metric in registry.metrics.values())
    used = any(metric.measures not in ("", "session_length") for metric in registry.metrics.values())
    kept = "; and, where noise is kept, which answers it has given" if memoized else ""
    together = [f"{_recognised('answers to all questions', DeviceTerms.of(registry).linked)}."] if memoized else []
    return _paragraphs(
        "The operator of the server can see, as with any web server, that a device uploads, when, and from which "
        "network address; and which questions that upload answers. They cannot see your answer, beyond those odds.",
        f"Anybody who can read the app's files on your device can see which questions it answered{kept}"
        f"{' and on which days the app was used' if used else ''}.",
        *together,
    )


def _refusing() -> tuple[Paragraph, ...]:
    how = (
        "Say no in the app's settings: to everything or, where the app offers it, to a single question. Or set ",
        Code("DO_NOT_TRACK=1"),
        " or ",
        Code("DITHER_TELEMETRY=0"),
        " in the environment that the app is started in. Then nothing is recorded, kept or sent.",
    )
    gone = "Reports that were sent before cannot be called back: nobody can tell which of them are yours."
    return Paragraph(how), *_paragraphs(gone)


def _paragraphs(*texts: str) -> tuple[Paragraph, ...]:
    return tuple(Paragraph((text,)) for text in texts)


def _factor(micro: int) -> str:
    """Return what an epsilon means, rounded up so that it stays true."""
    factor = Decimal(micro).scaleb(-6).exp()
    sure = (100 * factor / (1 + factor)).quantize(Decimal("0.1"), ROUND_CEILING)
    to = f"at most {sure}\N{NO-BREAK SPACE}%" if sure < 100 else "near certainty"
    return f"a factor of at most {_rounded_up(factor)} (epsilon {from_micro(micro):g}), from even odds to {to}"


def _rounded_up(factor: Decimal) -> str:
    digits = factor.adjusted()
    if digits < 6:
        step = Decimal("0.01") if factor < 2 else Decimal("0.1") if factor < 10 else Decimal(1)
        return f"{factor.quantize(step, ROUND_CEILING):,}"
    leading = factor.scaleb(-digits).quantize(Decimal("0.1"), ROUND_CEILING)
    return f"{leading} \N{MULTIPLICATION SIGN} 10{str(digits).translate(_RAISED)}"


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
