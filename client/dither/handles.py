"""A handle for each metric: what a host app records with."""

from collections.abc import Callable, Collection

from dither_shared.registry import Metric


class Handle:
    """One metric of the telemetry object."""

    def __init__(self, metric: Metric, record: Callable[[Metric, object], None]) -> None:
        self.metric = metric
        self._record = record


class Flag(Handle):
    """A yes-or-no question, answered with True or False; anything else, None included, is read as False.

    Use for a setting that is on or off. Do not use for events: a device answers once in a period. A metric that must
    tell "no answer" apart is a choice.

        telemetry.dark_mode.record(True)
    """

    def record(self, answer: bool) -> None:
        """Randomize True or False, numpy's too, and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Choice(Handle):
    """One of the listed values; whatever is not listed is "other".

    Use for a question with known answers. Do not use for free text: everything would be "other".

        telemetry.browser.record("Firefox 158")
    """

    def record(self, answer: str) -> None:
        """Randomize the answer and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Choices(Handle):
    """Several of the listed values; whatever is not listed is "other".

    Use for a question with several answers at once. Do not use for more ticks than `ticks_max`: of those the first
    listed count.

        telemetry.languages.record(["Python", "Rust"])
    """

    def record(self, answer: Collection[str]) -> None:
        """Randomize the list, tuple or set of answers, and keep the report to send. Never raises."""
        self._record(self.metric, answer)


class Text(Handle):
    """A word that nobody can list beforehand, up to 200 characters.

    Use for short texts that many devices share. Do not use for names or sentences: what is rare is not found.

        telemetry.homepage.record("example.org")
    """

    def record(self, answer: str) -> None:
        """Randomize the text's Bloom bits and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


HANDLES: dict[str, type[Handle]] = {handle.__name__.lower(): handle for handle in (Flag, Choice, Choices, Text)}
"""The handle of each kind of metric."""
