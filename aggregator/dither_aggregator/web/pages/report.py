"""The weekly report: answers and moves of all metrics, as on the first page, as text, HTML, JSON and gauges."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from flask import render_template
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from dither_aggregator.analysis.reading import Window
from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import ToldMoves
from dither_aggregator.web.pages.overview import Line, all_lines, by_moves, headline, moves_of
from dither_aggregator.web.pages.presentation import count, in_words
from dither_shared.frozen import canonical_json
from dither_shared.safe_output import visible


@dataclass(frozen=True)
class WeeklyReport:
    """All that a report says."""

    app: str
    headline: str
    window: Window
    """The week of which it is: the last seven closed days."""
    before: Window
    after: Window
    """The days that were compared: a week each or, of a younger store, half of its days."""
    entries: Sequence[tuple[Line, Sequence[str]]]
    """Each metric with what moved of it: those that moved come first."""
    url: str
    """The address of the pages; "" where that is not known."""
    html: str = ""

    @property
    def title(self) -> str:
        """The subject of its mail."""
        return f"{self.app}, {self.window.first} to {self.window.last}"

    @property
    def text(self) -> str:
        """All of it in lines."""
        return "\n".join(self._lines()) + "\n"

    @property
    def foot(self) -> str:
        """A sentence on how sure it is."""
        return (
            "On average, at most 5 % of the answers are wrong, and 5 % of the moves. "
            f"Moves compare two windows: {in_words(self.before)}; and {in_words(self.after)}. "
            "n counts reports, not people."
        )

    @property
    def moved(self) -> dict[str, object]:
        """The moves as a JSON document, with the same verdicts: corrected over all metrics.

        `id` is the same whenever the same is told of the same days; `text` is what chats show.
        """
        moved = [
            {
                "metric": line.stored.plan.metric,
                "question": line.stored.question,
                "moves": list(moves),
                **({"url": f"{self.url}/metrics/{line.stored.plan.metric}"} if self.url else {}),
            }
            for line, moves in self.entries
            if moves
        ]
        told = {
            "app": self.app,
            "from": f"{self.after.first}",
            "to": f"{self.after.last}",
            "base_from": f"{self.before.first}",
            "base_to": f"{self.before.last}",
            "metrics": len(self.entries),
            "moved": moved,
        }
        says = [f"{visible(line.stored.question)} {'; '.join(moves)}." for line, moves in self.entries if moves]
        text = "\n".join([f"{self.app}, {in_words(self.after)}: {self.headline}", *says, self.foot])
        return {"id": sha256(canonical_json(told)).hexdigest()[:32], **told, "text": text}

    def told(self, receiver: str) -> ToldMoves:
        """Return what is kept of it once a receiver was told."""
        moves = {line.stored.plan.metric: list(moves) for line, moves in self.entries}
        return ToldMoves(receiver, self.window.first, self.window.last, moves)

    def _lines(self) -> Iterator[str]:
        yield self.title
        yield self.headline
        for line, moves in self.entries:
            yield ""
            yield visible(line.stored.question)
            yield f"  {line.says}"
            yield from (f"  {move}" for move in moves)
            if line.answer.n:
                yield f"  {count(line.answer.n, 'report')}" + (
                    f", {self.url}/metrics/{line.stored.plan.metric}" if self.url else ""
                )
        yield ""
        yield self.foot


def gauges(app: str, told: ToldMoves) -> str:
    """Return whether each metric moved, in the text format of Prometheus."""
    end = datetime.combine(told.last, datetime.min.time(), UTC) + timedelta(days=1)
    registry = CollectorRegistry()
    moved = Gauge(
        "dither_metric_moved",
        "Whether a metric moved since the week before: verdicts are corrected over all metrics.",
        ["app", "metric"],
        registry=registry,
    )
    for metric, moves in told.moves.items():
        moved.labels(app=app, metric=metric).set(bool(moves))
    ends = Gauge(
        "dither_moves_end_timestamp_seconds", "The end of the week that this is of.", ["app"], registry=registry
    )
    ends.labels(app=app).set(end.timestamp())
    return generate_latest(registry).decode("utf-8")


def weekly(store: Store, url: str = "") -> WeeklyReport:
    """Return the report of the last closed week."""
    from dither_aggregator.web.reader_process import reading_app  # which loads all pages, this one too

    with reading_app(store).test_request_context("/"):
        found, changes = all_lines(store)
        lines = sorted(found, key=by_moves)
        entries = [(line, moves_of(line)) for line in lines]
        windows = Window.ending(store.sealed(), 7), changes.before, changes.after
        report = WeeklyReport(store.app, headline(lines, changes), *windows, entries, url)
        return WeeklyReport(**{**vars(report), "html": render_template("report.html", report=report)})
