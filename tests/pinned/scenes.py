"""Scenes of a device's life: what it is asked, when, with which draws, and all that comes of it (client/device.md).

A scene is played on the SDK's own device. Each draw has a name and not a place in a stream of bits, so that a client
in another language may draw in its own order: what is drawn is kept when a scene is written, and given when it is
played again. `SCENES` has the steps; the rest of a scene is what the SDK did.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from dither.device import Device, outbox, recording
from dither.device.recording import Budget, Slots, draw_periods
from dither.sending import upload_thread
from dither.sending.transport import Answer, Outcome, read_answer
from dither.sending.upload_thread import Sender
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import PADDED_BYTES_MIN, SYMBOL_DIGITS, new_upload_id
from tests.pinned.adapter import compiled_form
from tests.pinned.registries import registry_of
from tests.second.answers import NOTHING, value_of
from tests.second.coins import Coins
from tests.support.clocks import DAY_S, Clock

Document = dict[str, Any]
DAY = 20_777
"""The first day, a Friday: 2026-11-20."""
KEY = "dither_write_0123456789abcdef_abcdefghijklmnopqrstuvwxyz012345"
MOMENT_S, BACKOFF_S = 100, 60
"""So long a wait is in every client's range: of a report that was just recorded, and after an attempt that failed."""

# The registries.

LISTED = 'kind = "choice"\nmechanism = "grr"\nvalues = ["red", "green", "blue"]\nepsilon = 1\n'
MEMOS = (
    """name = paint
kind = "choice"
mechanism = "grr"
values = ["red", "green", "blue"]
memoize = true
answers = 2
epsilon = 1
epsilon_permanent = 3
""",
    """name = word
kind = "text"
memoize = true
answers = 1
epsilon = 1
epsilon_permanent = 4
""",
)


def _head(**changes: object) -> str:
    keys = {"app": '"scenes"', "device_epsilon": 100, "quiet_days": 0, "linkable": "true", **changes}
    return "\n".join(["[registry]", *(f"{key} = {value}" for key, value in keys.items()), ""])


def _theme(*more: str) -> str:
    return "\n".join([f"name = theme\n{LISTED}", *(more or ("reports = 4",))])


REGISTRIES: dict[str, str] = {
    "one": registry_of(_theme(), head=_head()),
    "quiet": registry_of(_theme(), head=_head(quiet_days=1)),
    "once": registry_of(_theme("reports = 1"), head=_head()),
    "week": registry_of(_theme("reports = 4", 'period = "7d"'), head=_head()),
    "rare": registry_of(_theme("reports = 60", 'schedule = "spread"'), head=_head()),
    "hidden": registry_of(_theme("reports = 4", 'presence = "hidden"'), head=_head()),
    "memos": registry_of(*MEMOS, head=_head()),
    "many": registry_of(
        *(f'name = f{place:02}\nkind = "flag"\nepsilon = 1\nreports = 2' for place in range(12)), _theme(), head=_head()
    ),
    "two": registry_of(_theme(), 'name = dark\nkind = "flag"\nepsilon = 1\nreports = 4', head=_head()),
}

# The steps. `day` and `s` are the time: days after the first one, and seconds after its noon.

Step = Document


def at(day: float, **do: object) -> Step:
    """Return a step so many days after the first noon."""
    return {"at": round((DAY + 0.5 + day) * DAY_S), **do}


def start(day: float, consent: bool | None = True) -> Step:
    return at(day, do="start", consent=consent)


def record(day: float, answer: object, metric: str = "theme") -> Step:
    return at(day, do="record", metric=metric, answer=answer)


def send(day: float, answer: object = None) -> Step:
    """Return a step that sends what waits, if anything may be sent, and gets an answer: a receipt unless told."""
    return at(day, do="send", answer=receipt() if answer is None else answer)


def look(day: float) -> Step:
    return at(day, do="look")


def receipt(date: str | None = None, rejected: list[Document] | None = None, accepted: int = 1) -> Document:
    document = {"upload": "UPLOAD", "accepted": accepted, "duplicate": False, "rejected": rejected or []}
    return reply(202, document, {} if date is None else {"Date": date})


def reply(status: int, document: object, headers: Mapping[str, str] = {}) -> Document:
    body = document if isinstance(document, str) else json.dumps(document)
    return {"status": status, "headers": dict(headers), "body": body}


def problem(status: int, word: str, headers: Mapping[str, str] = {}, **more: object) -> Document:
    return reply(status, {"type": f"urn:dither:problem:{word}", "status": status, **more}, headers)


def answered(*answers: object, days: tuple[float, ...] = (0.01, 0.02, 0.3)) -> list[Step]:
    """Return the steps of a report whose upload gets one answer after the other, and at last a receipt."""
    steps = [start(0), record(0, "green")]
    for day, answer in zip(days, [*answers, receipt()], strict=False):
        steps.append(send(day, answer))
    return [*steps, record(1, "red")]


HOUR = 1 / 24
GROUP = {"group": 0, "count": 1}
SCENES: dict[str, tuple[str, list[Step]]] = {
    "a first start, and a quiet day": (
        "quiet",
        [start(0), record(0, "red"), look(0.4), record(0.6, "green"), send(0.7)],
    ),
    "the first answer of a period counts": ("one", [start(0), record(0, "red"), record(0.2, "blue"), send(0.3)]),
    "periods of seven days begin on Thursdays": (
        "week",
        [start(0), record(0, "red"), send(0.1), record(5, "red"), record(5.49, "red"), record(5.6, "blue"), send(6)],
    ),
    "periods that are drawn": ("rare", [start(0)]),  # its days are those that it draws
    "a report that waits": (
        "one",
        [start(0), record(0, "red"), record(1, "green"), record(2, "blue"), send(2.1), send(2.2), send(3)],
    ),
    "hidden: a look opens a period, an answer takes its place": (
        "hidden",
        [start(0), record(0.1, "red"), record(0.2, "blue"), send(0.3), look(1), send(1.1), look(2), send(2.1)],
    ),
    "hidden: an answer that no look came before is dropped": (
        "hidden",
        [start(0), record(1, "red"), look(1.1), record(1.2, "red"), look(2), send(2.1)],
    ),
    "hidden: a device that says nothing": ("hidden", [start(0), look(0.4), look(0.6), send(0.7), look(1.6), send(1.7)]),
    "a memoized answer is charged once": (
        "memos",
        [
            start(0),
            *(
                step
                for day, colour in enumerate(["red", "red", "green", "blue", "green"])
                for step in (record(day, colour, "paint"), send(day + 0.1))
            ),
        ],
    ),
    "a memoized text and its cell": (
        "memos",
        [
            start(0),
            *(
                step
                for day, text in enumerate(["hello", "größer", "hello"])
                for step in (record(day, text, "word"), send(day + 0.1))
            ),
        ],
    ),
    "a budget that is spent": ("once", [start(0), record(0, "red"), send(0.1), record(1, "red"), record(2, "red")]),
    "the groups of an upload, and its padding": (
        "many",
        [
            start(0),
            *(record(0, place % 3 == 0, f"f{place:02}") for place in range(11, -1, -1)),
            record(0, "red"),
            send(0.1, receipt(accepted=13)),
        ],
    ),
    "a receipt that refuses a group": (
        "two",
        [
            start(0),
            record(0, "red"),
            record(0, True, "dark"),
            send(0.1, receipt(rejected=[{**GROUP, "reason": "retired"}])),
            record(1, True, "dark"),
            record(1, "red"),
            send(1.1),
            record(31, True, "dark"),
        ],
    ),
    "no connection": ("one", [*answered("no connection"), look(1.1)]),
    "no answer": ("one", answered("no answer")),
    "a captive portal": ("one", answered(reply(200, "<html>Log in</html>"), reply(202, {"upload": "A" * 22}))),
    "a proxy's errors": ("one", answered(reply(400, "Bad Request"), reply(413, "Request Entity Too Large"))),
    "401": ("one", [*answered(problem(401, "key-wrong")), send(1.1), start(2), send(2.1)]),
    "403": ("one", [*answered(problem(403, "origin-not-allowed")), start(2), send(2.1)]),
    "409": ("one", answered(problem(409, "upload-conflict"))),
    "410 expired": ("one", answered(problem(410, "expired", rejected=[{**GROUP, "reason": "expired"}]))),
    "410 retired": (
        "one",
        [*answered(problem(410, "retired", rejected=[{**GROUP, "reason": "retired"}])), record(30, "red")],
    ),
    "422": ("one", answered(problem(422, "refused", rejected=[{**GROUP, "reason": "unknown-plan"}]))),
    "413 of one group": ("one", answered(problem(413, "too-large"))),
    "413 of two groups": (
        "two",
        [
            start(0),
            record(0, "red"),
            record(0, True, "dark"),
            *(send(0.1 + place / 10, answer) for place, answer in enumerate([problem(413, "too-large"), None, None])),
        ],
    ),
    "429 and Retry-After in seconds": (
        "one",
        answered(problem(429, "too-many", {"Retry-After": "3000"}, limit="key"), days=(0.01, HOUR, 0.1)),
    ),
    "503 and Retry-After as a date": (
        "one",
        answered(
            problem(
                503,
                "backlog-full",
                {"Date": "Fri, 20 Nov 2026 12:00:00 GMT", "Retry-After": "Fri, 20 Nov 2026 12:00:30 GMT"},
            ),
            days=(0.01, 0.0105, 0.02),
        ),
    ),
    "500, which is kept": ("one", answered(problem(500, "failed"))),
    "given up after six days": (
        "one",
        [start(0), record(0, "red"), *(send(day, "no answer") for day in (0.1, 3, 6.09, 6.11)), record(7, "red")],
    ),
    "an attempt without a connection begins no six days": (
        "one",
        [start(0), record(0, "red"), send(0.1, "no connection"), send(7, "no answer"), send(12.9)],
    ),
    "a clock that was ahead": (
        "one",
        [start(40), record(40, "red"), send(40.1), record(0, "red"), record(29, "red"), look(29.9), record(30, "red")],
    ),
    "a clock that was ahead, and a receipt": (
        "one",
        [
            *(start(40), record(40, "red"), look(0), record(0, "green"), send(0.1, "no answer")),
            *(send(0.2, receipt("Sun, 03 Jan 2027 12:00:00 GMT")), record(1, "green")),
        ],
    ),
    "a clock that was ahead, and a receipt that agrees": (
        "one",
        [
            *(start(40), record(40, "red"), look(0), record(0.1, "green")),
            *(send(0.2, receipt("Fri, 20 Nov 2026 12:00:00 GMT")), record(0.3, "green")),
        ],
    ),
    "a clock that goes back while an upload waits": (
        "one",
        [start(3), record(3, "red"), send(3.1, "no answer"), send(2.9)],
    ),
    "everything is forgotten": (
        "memos",
        [
            *(start(0), record(0, "red", "paint"), send(0.1), record(1, "green", "paint")),
            *(at(1.1, do="forget"), record(2, "red", "paint"), send(2.1), record(31, "red", "paint")),
            *(record(32, "red", "paint"), send(32.1)),
        ],
    ),
    "nobody was asked, then the person agrees": (
        "one",
        [start(0, None), record(0, "red"), send(0.1), at(0.2, do="agree"), record(0.3, "green"), send(0.4)],
    ),
    "the person refuses while a report waits": (
        "one",
        [
            *(start(0), record(0, "red"), at(0.1, do="refuse"), record(0.2, "red"), send(0.3), start(1)),
            *(record(1, "red"), at(1.1, do="agree"), record(1.2, "blue"), send(1.3)),
        ],
    ),
    "the person refuses one metric": (
        "two",
        [
            *(start(0), record(0, "red"), record(0, True, "dark"), at(0.1, do="refuse", metric="dark")),
            *(record(0.2, True, "dark"), send(0.3), at(0.4, do="agree", metric="dark"), record(1, True, "dark")),
            send(1.1),
        ],
    ),
}


# Draws.


@dataclass
class Draws:
    """The draws of one step, by name. Written where nothing is given; what is given and not drawn is left over."""

    given: Document | None
    drawn: Document = field(default_factory=dict)

    def take(self, name: str, make: Callable[[], Any], *, key: str = "") -> Any:
        """Return the draw of this name, and of a metric perhaps."""
        group = self.drawn.setdefault(name, {}) if key else self.drawn
        group[key or name] = _of(self.given, name, key) if self.given is not None else make()
        return group[key or name]


def _of(given: Document, name: str, key: str) -> Any:
    return given[name][key] if key else given[name]


# The player.


class Player:
    """A device that lives a scene, with its own store, clock and sender. `given` are the draws of another one."""

    def __init__(self, registry: Registry, directory: Path, seed: int) -> None:
        self._registry, self._directory = registry, directory
        self._clock, self._random = Clock(), random.Random(seed)
        self._draws = Draws(None)
        self._step: Step = {}
        self._sent: bytes | None = None
        self._device: Device | None = None
        self._stopped = self._agreed = False

    def play(self, step: Step, given: Document | None) -> tuple[Document, Document]:
        """Do a step; return what was drawn, and what came of it."""
        self._draws, self._step, self._clock.now = Draws(given), step, float(step["at"])
        self._sent = None
        with self._naming():
            came = getattr(self, f"_{step['do']}")(step)
        return self._draws.drawn, {**came, "state": self._state()}

    def close(self) -> None:
        if self._device:
            self._device.close()

    # Steps.

    def _open(self) -> Device:
        if self._device is None:
            bits = Rng(self._random.getrandbits)
            self._device = Device(self._registry, self._directory, bits, self._clock)
            self._device.open()
        return self._device

    def _start(self, step: Step) -> Document:
        """Start the app again, as `start(consent=...)` does: nothing is made or kept while nobody agreed."""
        self.close()
        self._device, self._stopped, self._agreed = None, False, False
        if step["consent"] or any(self._directory.iterdir()):
            device = self._open()
            kept = device.choice()
            self._agreed = step["consent"] if kept is None else kept
            if self._agreed:
                device.agree_once()
                self._begin(device)
        return {}

    def _begin(self, device: Device) -> None:
        device.begin()
        device.look(self._delay)

    def _record(self, step: Step) -> Document:
        if not self._agreed:
            return {"silent": "off"}
        metric = self._registry.metrics[step["metric"]]
        return {"silent": self._open().record(metric, step["answer"], self._delay)}

    def _look(self, step: Step) -> Document:
        self._open().look(self._delay)
        return {}

    def _agree(self, step: Step) -> Document:
        device = self._open()
        if "metric" in step:
            device.refuse_metric(step["metric"], refused=False)
        else:
            device.agree(chosen=True)
            self._agreed = True
        self._begin(device)
        return {}

    def _refuse(self, step: Step) -> Document:
        if "metric" in step:
            self._open().refuse_metric(step["metric"], refused=True)
        else:
            self._open().refuse()
            self._agreed = False
        return {}

    def _forget(self, step: Step) -> Document:
        self._open().forget()
        return {}

    def _send(self, step: Step) -> Document:
        """Make one attempt where something is due, and nobody asked to wait: as a flush does."""
        if not self._agreed or self._stopped:
            return {"sent": None}
        seen = self._open().look(self._delay)
        if not seen.due or seen.held_until > self._clock():
            return {"sent": None}
        outcome = Sender(self._open(), self, self._clock).attempt()
        self._stopped = outcome is Outcome.STOPPED
        if self._sent is None:
            return {"sent": None, "tried": outcome is not None}
        simple = with_key(self._sent)
        return {
            "sent": self._sent.decode("ascii"),
            "simple": simple.decode("ascii"),
            "outcome": outcome and outcome.value,
        }

    # As a transport.

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        answer = self._step["answer"]
        if answer == "no connection":
            return Answer(Outcome.KEPT, "no connection", connected=False)
        stands()
        self._sent = body
        if answer == "no answer":
            return Answer(Outcome.KEPT, "no answer")
        answer["body"] = answer["body"].replace("UPLOAD", upload_id)
        return read_answer(answer["status"], answer["headers"], answer["body"].encode(), upload_id)

    def idle(self) -> None:
        pass

    # The draws.

    def _delay(self) -> float:
        return float(self._draws.take("moment_s", lambda: self._random.randrange(1, MOMENT_S)))

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Let draws of a device be those of this step, by name."""
        draws, cohort = self._draws, Slots._cohort
        randomize, pay_class = Slots._randomize, Budget.pay_class
        answers, repeats = self._step.get("answer"), dict[str, int]()

        def periods(metric: Any, rng: Rng) -> list[int]:
            return [*draws.take("schedule", lambda: draw_periods(metric, rng), key=metric.name)]

        def paid(self: Budget, metric: Any, key: str) -> tuple[str, int]:
            key, charge = pay_class(self, metric, key)
            repeats[metric.name] = int(key, 16)
            return key, charge

        def number(self: Slots) -> int:
            known = self._file.get("cohort")
            if known is None:
                self._file.set("cohort", draws.take("cohort", lambda: self._rng.uniform(128)))
            return cohort(self)

        def report(slots: Slots, metric: Any, answer: Any, cell: int) -> tuple[int, str | None, str]:
            charge, key, made = randomize(slots, metric, answer, cell)
            asked = answers if self._step.get("metric") == metric.name else NOTHING
            value = value_of(metric.plan.to_document(), cell, asked, Coins(lambda bits: 0), 0)
            told = {"cell": cell if metric.cells.several else None, "value": _plain(value)}
            if metric.memoized and isinstance(value, int):
                told["repeats"] = repeats[metric.name]
            one = draws.take("reports", lambda: {**told, "report": json.loads(made)}, key=metric.name)
            assert {**told, "report": one["report"]} == one, (told, one)
            return charge, key, json.dumps(one["report"]).ljust(SYMBOL_DIGITS)

        def upload_id(bits: Callable[[int], int]) -> str:
            made = (
                new_upload_id(bits)
                if draws.given is None
                else draws.given["uploads"][len(draws.drawn.get("uploads", ()))]
            )
            draws.drawn.setdefault("uploads", []).append(made)
            return made

        def backoff(most_s: float) -> float:
            return float(draws.take("backoff_s", lambda: self._random.randrange(1, BACKOFF_S)))

        with (
            patch.object(recording, "draw_periods", periods),
            patch.object(Budget, "pay_class", paid),
            patch.object(Slots, "_cohort", number),
            patch.object(Slots, "_randomize", report),
            patch.object(outbox, "new_upload_id", upload_id),
            patch.object(upload_thread, "jitter", backoff),
        ):
            yield

    # The results.

    def _state(self) -> Document:
        """Return all that an app and its person may ask of a device, and nothing of how it keeps it."""
        device = self._device
        if device is None or not self._agreed:
            return {"off": True}
        sending = device.sending()
        return {
            "silent": {
                name: [skip.reason.value, skip.until] for name, skip in device.skip_reasons().items() if skip.reason
            },
            "spent": device.spent(),
            "waiting": device.waiting(),
            "counters": device.counters(),
            "next": _seconds(sending.next),
            "held_until": _seconds(sending.held_until),
        }


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.astimezone(UTC).timestamp())


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def with_key(body: bytes) -> bytes:
    """Return an upload as a page sends it: its key within, and padded as one that was as long from the start."""
    document = body.rstrip(b" ")
    keyed = document.replace(b'{"v":1,', b'{"v":1,"key":"%s",' % KEY.encode(), 1)
    groups = json.loads(document)["groups"]
    room = sum(SYMBOL_DIGITS - len(str(one)) for group in groups for one in group["reports"] if isinstance(one, int))
    room += sum(5 - len(str(group["cell"])) for group in groups if "cell" in group)
    return keyed.ljust(max(PADDED_BYTES_MIN, 1 << (len(keyed) + room - 1).bit_length()))


# The file.


def played(
    registry: str, steps: list[Step], draws: list[Document] | None, seed: int = 1
) -> list[tuple[Document, Document]]:
    """Return what is drawn in each step of a scene, and what comes of it."""
    with TemporaryDirectory() as directory:
        player = Player(Registry.parse(registry), Path(directory), seed)
        try:
            return [player.play(step, draws[place] if draws else None) for place, step in enumerate(steps)]
        finally:
            player.close()


def _scene(name: str, seed: int) -> Document:
    registry, steps = SCENES[name]
    if name == "periods that are drawn":
        ((drawn, _),) = played(REGISTRIES[registry], steps, None, seed)
        days = sorted(day - DAY for day in drawn["schedule"]["theme"] if day > DAY)
        silent = next(day for day in range(days[0] + 1, 400) if day not in days)
        steps = [
            *steps,
            *(step for day in sorted([*days[:2], silent]) for step in (record(day, "red"), send(day + 0.1))),
        ]
    steps = json.loads(json.dumps(steps))  # each answer is to name its own upload
    came = played(REGISTRIES[registry], steps, None, seed)
    for step, (_, then) in zip(steps, came, strict=True):
        if not (then.get("sent") or then.get("tried")):
            step.pop("answer", None) if step["do"] == "send" else None
    return {
        "name": name,
        "registry": registry,
        "steps": [{**step, "draws": draws, "then": then} for step, (draws, then) in zip(steps, came, strict=True)],
    }


def pinned() -> Document:
    """Return the vectors of devices.json."""
    return {
        "key": KEY,
        "registries": {
            name: {"toml": toml, "compiled": compiled_form(toml, Path())} for name, toml in REGISTRIES.items()
        },
        "scenes": [_scene(name, seed) for seed, name in enumerate(SCENES)],
    }
