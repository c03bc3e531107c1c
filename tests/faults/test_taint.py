"""No answer, and nothing that an answer says of itself, is found anywhere but in the app.

Every answer carries a marker: as its text, or in what its methods return or raise. The file and its log, the uploads,
what is logged and printed, and what is raised are searched for it, and for its usual encodings. The last test plants
leaks, and finds them.
"""

import base64
import io
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import pytest

import dither
from dither.device import Device
from dither.device.recording import Slots
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Metric, Registry
from tests.faults.apps import Taker
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES

MARKER = "zqxjkvbw"
LISTED = f"{MARKER} listed"
FORMS = [
    MARKER.encode(),
    MARKER.encode("utf-16-le"),
    *(base64.b64encode(b"\0" * shift + MARKER.encode())[4:10] for shift in range(3)),
    MARKER.encode().hex().encode(),
    MARKER.upper().encode(),
    MARKER[::-1].encode(),
]
LIVES = {
    "fresh": "reports = 9\nschedule = 'early'\nepsilon = 1",
    "memo": "memoize = true\nanswers = 9\nepsilon = 1\nepsilon_permanent = 2",
}
NUMBER_LIVES = {"memo": LIVES["memo"].replace("answers = 9", "answers = 2")}
"""A number has two answers."""
KINDS = {
    "flag": "kind = 'flag'",
    "choice": f"kind = 'choice'\nvalues = ['{LISTED}', 'b', 'c']",
    "choices": f"kind = 'choices'\nvalues = ['{LISTED}', 'b', 'c']\nticks_max = 2",
    "text": f"kind = 'text'\ncandidates = ['{LISTED}']",
    "number": "kind = 'number'\nunit = 's'\nlow = 0\nhigh = 16\nbuckets = 16",
    "table": f"kind = 'table'\ncolumns = {{ word = ['{LISTED}', 'b', 'c'], far = {{ edges = [1, 5, 9] }}, "
    "near = { low = 0, high = 9, asks = ['mean'] } }",
}
ASKED = Registry.parse(
    "[registry]\napp = 'taint'\ndevice_epsilon = 500\nquiet_days = 0\n"
    + "".join(
        f"[metric.{kind}_{life}_{presence}]\n{keys}\n{how}\npresence = '{presence}'\nrev = 1\nquestion = 'What?'\n"
        f"period = '1d'\nowners = ['team@example.org']\nsensitivity = 'low'\nexpires = {EXPIRES}\n"
        for kind, keys in KINDS.items()
        for life, how in (LIVES | NUMBER_LIVES if kind == "number" else LIVES).items()
        for presence in ("public", "hidden")
        if (kind != "text" or life == "memo") and (kind != "table" or life == "fresh")
        if (kind, life, presence) != ("number", "memo", "hidden")
    )
)

# Answers of every type, right and wrong.


class Shown:
    """Says the marker whenever it is asked anything that returns a text."""

    def __repr__(self) -> str:
        return MARKER

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return MARKER


def _raise(*_: object) -> NoReturn:
    raise ValueError(MARKER)


class Raising:
    """Raises the marker whatever it is asked."""

    __repr__ = __str__ = __bool__ = __len__ = __iter__ = __hash__ = __eq__ = __format__ = __contains__ = _raise

    @property
    def __class__(self) -> type:
        return _raise()

    @__class__.setter
    def __class__(self, value: type) -> None:
        _raise()


class RaisingText(str):
    """A text whose methods raise the marker."""

    __slots__ = ()
    __hash__ = __eq__ = __repr__ = __str__ = __len__ = __iter__ = encode = __bool__ = _raise  # type: ignore[assignment]


class RaisingList(list[object]):
    """A list whose methods raise the marker."""

    __iter__ = __len__ = __repr__ = __bool__ = _raise


class RaisingNumber(float):
    """A number whose methods raise the marker."""

    __repr__ = __hash__ = __eq__ = __gt__ = __float__ = as_integer_ratio = _raise


class RaisingMapping(Mapping[str, object]):
    """A mapping whose methods raise the marker."""

    __getitem__ = __iter__ = __len__ = __contains__ = __repr__ = _raise


class Lying(str):
    """A text that says that it is every other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(LISTED)


class Group(ExceptionGroup):
    """An exception for an answer."""


ANSWERS: list[Callable[[], object]] = [
    lambda: LISTED,
    lambda: MARKER,
    lambda: f"{MARKER} \ud800",
    lambda: MARKER * 100,
    lambda: MARKER.encode(),
    lambda: [LISTED, "b"],
    lambda: [MARKER, MARKER],
    lambda: {MARKER},
    lambda: (MARKER, [MARKER]),
    lambda: {MARKER: MARKER},
    lambda: {"word": LISTED, "far": int(MARKER.encode().hex(), 16)},
    lambda: {"word": MARKER, "near": Raising(), "far": RaisingNumber(5)},
    lambda: {"word": Raising(), Lying(MARKER): MARKER},
    lambda: RaisingMapping(),
    lambda: [Raising(), MARKER],
    lambda: Shown(),
    lambda: [Shown()],
    lambda: Raising(),
    lambda: RaisingText(MARKER),
    lambda: RaisingList([MARKER]),
    lambda: Lying(MARKER),
    lambda: [Lying(MARKER)],
    lambda: Path(MARKER),
    lambda: ValueError(MARKER),
    lambda: Group(MARKER, [ValueError(MARKER)]),
    lambda: type(MARKER, (), {}),
    lambda: (MARKER for _ in range(2)),
    lambda: int(MARKER.encode().hex(), 16),
    lambda: Fraction(int(MARKER.encode().hex(), 16), 10**18),
    lambda: Decimal(int(MARKER.encode().hex(), 16)).scaleb(-18),
    lambda: RaisingNumber(5),
    lambda: True,
    lambda: None,
]


def found_in(where: str, content: bytes) -> list[str]:
    return [f"{form!r} in {where}" for form in FORMS if form in content]


class Watch:
    """All the places where an answer could come out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.taker = Taker()
        self.printed = io.StringIO()
        self.raised: list[str] = []
        self.snapshots: list[bytes] = []

    def keep_files(self) -> None:
        """Keep what the files hold now: what is deleted later was there."""
        for path in self.directory.iterdir():
            if not path.name.endswith("-shm"):
                with suppress(FileNotFoundError):  # the last connection to close takes the log with it
                    self.snapshots.append(path.read_bytes())

    def leaks(self) -> list[str]:
        places = [("an upload", body) for body in self.taker.bodies]
        places += [("a file", content) for content in self.snapshots]
        places += [("what is printed", self.printed.getvalue().encode("utf-8", "replace"))]
        places += [("what is raised", text.encode("utf-8", "replace")) for text in self.raised]
        return [leak for where, content in places for leak in found_in(where, content)]


@contextmanager
def logged_to(stream: io.StringIO) -> Iterator[None]:
    """Log as DITHER_DEBUG does, and whatever any other logger has to say of it, with its traceback."""
    root, ours = logging.getLogger(), logging.getLogger("dither")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s %(exc_text)s"))
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    try:
        with redirect_stderr(stream):
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


def live(directory: Path, answers: list[Callable[[], object]], strict: bool = False) -> Watch:
    """Record every answer with every metric, on a day of its own, and send it."""
    watch, clock = Watch(directory), Clock()
    with logged_to(watch.printed):
        telemetry = Telemetry(Settings(ASKED, watch.taker, directory, consent=True, strict=strict, clock=clock))
        for answer in answers:
            for name in ASKED.metrics:
                try:
                    getattr(telemetry, name).record(answer())
                except Exception as error:
                    raised = "".join(traceback.format_exception(error))
                    watch.raised.append(raised.replace(LISTED, "what is listed"))  # which is named whatever the answer
                    watch.raised.append(repr(error.__context__) + repr(error.__cause__))
            watch.keep_files()
            print(telemetry.status(), telemetry.preview(), file=sys.stderr)
            telemetry.flush(5)
            watch.keep_files()
            clock.travel(1)
        telemetry.forget()
        watch.keep_files()
        telemetry.close()
    watch.keep_files()
    return watch


@pytest.mark.parametrize("strict", [False, True])
def test_no_answer_is_found_anywhere(home: Path, strict: bool) -> None:
    watch = live(home / "d", ANSWERS, strict)
    assert watch.leaks() == []
    assert bool(watch.raised) is strict
    assert len(watch.taker.bodies) > 8
    assert sum(map(len, watch.snapshots)) > 1_000_000
    assert "recorded" in watch.printed.getvalue()


def test_strict_raises_what_says_nothing_of_the_answer(home: Path) -> None:
    telemetry = Telemetry(Settings(ASKED, Taker(), home / "d", consent=True, strict=True, clock=Clock()))
    wrong = [answer for answer in ANSWERS if not ASKED.metrics["choice_fresh_public"].takes(answer())]
    assert len(wrong) > 20
    for answer in wrong:
        with pytest.raises(dither.InvalidAnswer, match="choice_fresh_public") as caught:
            telemetry.choice_fresh_public.record(answer())
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    telemetry.close()


# Leaks that are found.


def leak_to_the_log(patch: pytest.MonkeyPatch) -> None:
    record = Telemetry._record

    def chatty(self: Telemetry, metric: Metric, answer: object) -> None:
        logging.getLogger("dither").debug("%r to %s", answer, metric.name)
        record(self, metric, answer)

    patch.setattr(Telemetry, "_record", chatty)


def leak_to_the_file(patch: pytest.MonkeyPatch) -> None:
    record = Device.record

    def keeping(self: Device, metric: Metric, answer: object, *rest: Any) -> str:
        for value in (answer, None):  # deleted is not gone
            with self._file.transaction():
                self._file.set("last", value)
        return record(self, metric, answer, *rest)

    patch.setattr(Device, "record", keeping)


def leak_to_the_upload(patch: pytest.MonkeyPatch) -> None:
    fill = Slots._fill

    def frank(self: Slots, metric: Metric, answer: Any) -> None:
        fill(self, metric, answer)
        self._file.execute("UPDATE slot SET report = ? WHERE metric = ?", (f'"{answer}"', metric.name))

    patch.setattr(Slots, "_fill", frank)


def leak_to_an_exception(patch: pytest.MonkeyPatch) -> None:
    takes = Metric.takes

    def told(self: Metric, answer: object) -> bool:
        if not takes(self, answer):
            raise ValueError(f"no {answer!r}")
        return True

    patch.setattr(Metric, "takes", told)


LEAKS = {
    leak_to_the_log: "what is printed",
    leak_to_the_file: "a file",
    leak_to_the_upload: "an upload",
    leak_to_an_exception: "what is raised",
}


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_a_planted_leak_is_found(
    home: Path, leak: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leak(monkeypatch)
    watch = live(home / "d", ANSWERS[:2], strict=True)
    assert any(LEAKS[leak] in found for found in watch.leaks())  # type: ignore[index]
