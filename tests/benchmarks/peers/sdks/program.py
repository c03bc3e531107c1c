"""Be a program that uses a telemetry SDK: `python -I program.py SDK SCENARIO ENDPOINT DIRECTORY`.

The SDK's module, `use_SDK.py`, has `start(endpoint, directory)`, `record(session, i)` for an event named `event_i`, and
`finish(session)`, which delivers what was recorded as far as the SDK can be asked to. A scenario's measurements are
left in DIRECTORY/answer.json.

Nothing is imported here that an interpreter does not have at hand: in the bare program it would be taken for a part of
the interpreter, and hidden from what the SDKs cost.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WARM = 20
CALLS = 200
LATER_S = 0.2
SIGKILL = 9


def start(sdk: Any, endpoint: str, directory: str) -> None:
    """Import the SDK, start it, and end."""
    sdk.start(endpoint, directory)


def record(sdk: Any, endpoint: str, directory: str) -> None:
    """Time each call, first with events that are new, then with the same ones again."""
    session = sdk.start(endpoint, directory)
    first, *_ = [_microseconds(sdk, session, i) for i in range(WARM)]
    again = range(WARM, WARM + CALLS)
    fresh_us = [_microseconds(sdk, session, i) for i in again]
    _answer(directory, first_us=first, fresh_us=fresh_us, again_us=[_microseconds(sdk, session, i) for i in again])


def once(sdk: Any, endpoint: str, directory: str) -> None:
    """Record one event and leave the rest to what the SDK does at exit."""
    sdk.record(sdk.start(endpoint, directory), 0)
    _answer(directory, ends=time.monotonic())


def loaded(sdk: Any, endpoint: str, directory: str) -> None:
    """Record one event, deliver it, and tell how long those of the SDK's sources are that this has loaded."""
    session = sdk.start(endpoint, directory)
    sdk.record(session, 0)
    sdk.finish(session)
    name = sdk.__name__.removeprefix("use_")
    files = {module.__file__ for key, module in list(sys.modules.items()) if key.startswith(name)}
    _answer(directory, bytes=sum(os.path.getsize(file) for file in files if file))  # noqa: PTH202


def killed(sdk: Any, endpoint: str, directory: str) -> None:
    """Record one event and be killed at once."""
    sdk.record(sdk.start(endpoint, directory), 0)
    os.kill(os.getpid(), SIGKILL)


def killed_later(sdk: Any, endpoint: str, directory: str) -> None:
    """Record one event and be killed when the SDK's threads have had time to write it down."""
    sdk.record(sdk.start(endpoint, directory), 0)
    time.sleep(LATER_S)
    os.kill(os.getpid(), SIGKILL)


def again(sdk: Any, endpoint: str, directory: str) -> None:
    """Start once more, as after a crash, and deliver what there is."""
    sdk.finish(sdk.start(endpoint, directory))


def fork(sdk: Any, endpoint: str, directory: str) -> None:
    """Record one event before a fork, and one on each side of it; both sides deliver and exit."""
    session = sdk.start(endpoint, directory)
    sdk.record(session, 0)
    child = os.fork()
    sdk.record(session, 1 if child else 2)
    sdk.finish(session)
    if child:
        os.waitpid(child, 0)
    sys.exit()


def _microseconds(sdk: Any, session: Any, i: int) -> float:
    started = time.perf_counter_ns()
    sdk.record(session, i)
    return (time.perf_counter_ns() - started) / 1000


def _answer(directory: str, **found: object) -> None:
    with open(f"{directory}/answer.json", "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not imported here
        file.write(repr(found).replace("'", '"'))  # nor is json: there are only numbers and lists of them


SCENARIOS = {each.__name__: each for each in (start, record, once, killed, killed_later, again, fork, loaded)}

if __name__ == "__main__":
    name, scenario, *where = sys.argv[1:]
    sys.path.append(os.path.dirname(__file__))  # noqa: PTH120
    SCENARIOS[scenario](__import__(f"use_{name}"), *where)
