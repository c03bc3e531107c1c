"""Questions from a notebook or a script: a client of an aggregator's API, out of the standard library.

import dither_aggregator

reader = dither_aggregator.read("https://telemetry.example.org", key)
(answer,) = reader.ask('share(dark = "yes")')
print(answer.estimate, answer.lower, answer.upper)
reader.ask('share(dark = "yes") by week').frame().plot(x="from", y="estimate")
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, ClassVar, overload
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from dither.sending.route import check_endpoint
from dither_shared.errors import ConfigurationError, DitherError

ANSWER_BYTES_MAX = 64 * 1024 * 1024
WITHIN_S = 90.0
SERVER_ERRORS = 500
"""This status and those above it are no fault of who asks."""


class NotAnswered(DitherError):
    """An aggregator that did not answer, in its own words where it has some."""

    retry_after_s: int | None = None
    """So many seconds later the same question may be answered; None where it will not be."""


@dataclass(frozen=True)
class NotebookAnswer:
    """An answer with its interval, as `GET /v1/query` describes it; `estimate` is None where nothing can be told."""

    question: str
    first: date
    last: date
    n: int
    devices: int
    estimate: float | None
    lower: float | None
    upper: float | None
    unit: str
    untold: str
    others: dict[str, Any] = field(default_factory=dict, repr=False)
    """All else that the row has: family, together, z, error_of."""

    names: ClassVar = {"first": "from", "last": "to"}
    """The columns of the API that are no names of Python."""

    @classmethod
    def of(cls, row: dict[str, Any]) -> "NotebookAnswer":
        """Return a row of the API's."""
        own = [each.name for each in fields(cls) if each.name != "others"]
        known = {name: row[cls.names.get(name, name)] for name in own}
        known |= {name: date.fromisoformat(known[name]) for name in cls.names}
        columns = {cls.names.get(name, name) for name in own}
        return cls(**known, others={name: value for name, value in row.items() if name not in columns})

    def __str__(self) -> str:
        days = f"{self.first} to {self.last}" if self.last > self.first else f"{self.last}"
        row = self.others.get("name", "")
        what = f"{self.question}, {days}" + f", {row}" * bool(row)
        if self.estimate is None:
            return f"{what}: cannot be told: {self.untold}"
        if self.lower is not None and self.upper is None:
            return f"{what}: at least {self.lower:,.0f} {self.unit}"
        unit = f" {self.unit}" * (self.unit not in ("", "1"))
        ends = "" if self.lower is None else f" ({self.lower:.4g} to {self.upper:.4g})"
        return f"{what}: {self.estimate:.4g}{unit}{ends}"


class Answers(Sequence[NotebookAnswer]):
    """The answers of one request, in the order of its questions and of their days."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.meta: dict[str, Any] = document["meta"]
        self.rows: list[dict[str, Any]] = document["rows"]
        self._answers = [NotebookAnswer.of(row) for row in self.rows]

    @overload
    def __getitem__(self, at: int) -> NotebookAnswer: ...
    @overload
    def __getitem__(self, at: slice) -> list[NotebookAnswer]: ...
    def __getitem__(self, at: int | slice) -> NotebookAnswer | list[NotebookAnswer]:
        """Return an answer, or some."""
        return self._answers[at]

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        return "\n".join(map(str, self))

    def frame(self) -> Any:
        """Return the rows as a frame of pandas, with days as its dates; raise ConfigurationError without pandas."""
        try:
            import pandas as pd
        except ImportError:
            raise ConfigurationError("a frame needs pandas: pip install pandas; .rows are plain dicts") from None
        frame = pd.DataFrame(self.rows)
        return frame.assign(**{name: pd.to_datetime(frame[name]) for name in NotebookAnswer.names.values()})


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the key is for one address alone."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Refuse."""


@dataclass(frozen=True)
class AggregatorReader:
    """An aggregator that is asked over its API."""

    url: str
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_endpoint(self.url)
        if self.key and not (self.key.isascii() and self.key.isprintable()):  # http.client's error would show the key
            raise ConfigurationError("the key has a character that no key has, such as a line end: give key.strip()")

    def ask(self, *questions: str, weights: bool = False) -> Answers:
        """Ask one question, whose interval holds whatever is asked next, or several that were all fixed before any.

        The intervals of several hold together with each other alone, and are narrower: ask all of them at once, and do
        not ask again because of what came out. Raises NotAnswered, and ConfigurationError for what is no text.
        """
        if not questions:
            raise ConfigurationError('ask a question, such as share(dark = "yes")')
        if any("\ud800" <= character <= "\udfff" for question in questions for character in question):
            raise ConfigurationError("a question has half of a surrogate pair, which is no character")
        form = {"weights": "true"} if weights else {}
        if len(questions) == 1:
            return Answers(self._read({"q": questions[0], **form}, None))
        return Answers(self._read(form, json.dumps({"questions": questions}).encode()))

    def _read(self, query: dict[str, str], body: bytes | None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        address = f"{self.url.rstrip('/')}/v1/query?{urlencode(query)}"
        proxies = ProxyHandler({} if address.startswith("http:") else None)  # none may read what goes to loopback
        try:
            request = Request(address, body, headers)  # noqa: S310  # https, or http on loopback: looked at above
            with build_opener(_NoRedirect, proxies).open(request, timeout=WITHIN_S) as answer:
                text = answer.read(ANSWER_BYTES_MAX)
            document: dict[str, Any] = json.loads(text)
        except HTTPError as error:
            raise _refused(error) from None
        except (URLError, OSError, ValueError) as error:
            raise NotAnswered(f"{self.url} did not answer: {getattr(error, 'reason', error)}") from None
        return document


def _refused(error: HTTPError) -> NotAnswered:
    """Return what a refusal says."""
    try:
        problem = json.loads(error.read(ANSWER_BYTES_MAX))
        refused = NotAnswered(str(problem["detail"]))
        refused.retry_after_s = problem.get("retry_after_s")
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        own = "is this an aggregator, and does it know the key?"
        failed = "it failed, or what stands before it; the log says why"
        return NotAnswered(f"{error.url} answered {error.code}: {failed if error.code >= SERVER_ERRORS else own}")
    return refused
