"""A registry that comes while uploads are taken: a process of its own reads it, within limits, and says what is in it.

The process knows the shared code alone. It is nicer than the server, as readers are. It decodes the body too, and
refuses what the store would: uploads wait for each step that the server's own process takes.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import msgspec

from dither_shared.errors import DitherError, RegistryError
from dither_shared.plan import Plan
from dither_shared.registry import Registry, utc_today

PROCESSOR_S = 20
READ_WITHIN_S = 60
"""By the clock: uploads come first."""
MEMORY_BYTES_MAX = 512 * 1024 * 1024
BODY = msgspec.json.Decoder(dict[str, str | int | float | bool | list[str | int | float | bool | None] | None])
"""Bodies hold words, numbers and lists of them: what is nested deeper, however much of it, is not even read."""
REGISTRY = "registry"
"""The one member of a body that holds a registry."""
_REFUSED, _TOO_MUCH, _NO_REGISTRY = 2, 3, 4


class NoRegistry(DitherError):
    """A body that holds no registry. `short` is a short one that is wrong in the same way."""

    def __init__(self, short: bytes) -> None:
        super().__init__("the body holds no registry")
        self.short = short


class Known(msgspec.Struct, frozen=True, array_like=True):
    """The part of a store by which it refuses registries."""

    app: str
    digests: Sequence[tuple[str, int, str]]
    """Of all plans, each with its metric and rev."""

    def check(self, registry: Registry) -> None:
        """Raise RegistryError for a registry that the store would refuse, in the store's words."""
        if registry.app != self.app:
            raise RegistryError(another_app(self.app, registry.app))
        before = {(metric, rev): digest for metric, rev, digest in self.digests}
        for plan in (metric.plan for metric in registry.metrics.values()):
            digest = before.get((plan.metric, plan.rev), plan.digest)
            if digest != plan.digest:
                raise RegistryError(another_meaning(plan, digest))


def another_app(app: str, offered: str) -> str:
    """Return why a store takes no registry of another app."""
    return f"the store belongs to the app {app!r} and the registry to {offered!r}; give each app a store of its own"


def another_meaning(plan: Plan, digest: str) -> str:
    """Return why a store takes no plan in the place of another one of the same rev, whose digest is given."""
    return (
        f"metric.{plan.metric}: rev {plan.rev} was loaded before with another meaning (plan {digest}, now "
        f"{plan.digest}); give the changed metric the next rev"
    )


def read_apart(registry: bytes | Path, known: Known | None = None) -> dict[str, Any]:
    """Read a registry, its file or a body that holds it; return what `Offered.from_document` makes plans of.

    Raises RegistryError as `Registry.load` does, for one that takes too long or too much memory, and for one that a
    known store would refuse; NoRegistry for another body.
    """
    path = str(registry) if isinstance(registry, Path) else ""
    source = path or REGISTRY
    body = b"" if isinstance(registry, Path) else registry
    too_much = RegistryError(
        f"{source}: must be read within {PROCESSOR_S} seconds and {MEMORY_BYTES_MAX >> 20} MiB of memory"
    )
    with subprocess.Popen(  # noqa: S603  # this module, and a path of the operator's
        [sys.executable, "-P", "-m", "dither_aggregator.loading", *filter(None, [path])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        process_group=0,  # a terminal's Ctrl-C is for the server
    ) as process:
        assert process.stdin
        assert process.stdout
        in_time = Timer(READ_WITHIN_S, process.kill)
        in_time.daemon = True
        in_time.start()
        try:
            give_way(process=process.pid)  # from its first step: to start takes longer than most registries do
            # Not by `communicate`, which writes 512 bytes at a time and has uploads wait for each.
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(msgspec.json.encode(known) + b"\n")
                process.stdin.write(body)
            said = process.stdout.read()  # it says nothing before it has read all
        finally:
            process.kill()  # where it has not ended
            in_time.cancel()
    if process.returncode == _REFUSED:
        raise RegistryError(said.decode())
    if process.returncode == _NO_REGISTRY:
        raise NoRegistry(said)
    if process.returncode:
        raise too_much
    document: dict[str, Any] = json.loads(said)
    return document


def document_of(registry: Registry) -> dict[str, Any]:
    """Return what a store takes of a registry."""
    return {
        "app": registry.app,
        "plans": [
            {
                "plan": metric.plan.to_document(),
                "question": metric.question,
                "candidates": metric.asked.candidates,
                "reservation": metric.reservation,
                "expires": metric.expires.isoformat(),
                "period_days": metric.period_days,
            }
            for metric in registry.metrics.values()
        ],
    }


def give_way(niceness: int = 19, process: int = 0) -> None:
    """Have the server go before a process, this one or another, where both want a processor."""
    os.setpriority(os.PRIO_PROCESS, process, niceness)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(process, os.SCHED_BATCH, os.sched_param(0))  # it takes no processor from who wakes up


def main() -> int:
    """Read the registry that is named, or said; write what is in it, or why it is refused."""
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CPU, PROCESSOR_S)):
        resource.setrlimit(what, (most, most))
    source = sys.argv[1] if len(sys.argv) > 1 else REGISTRY
    try:
        known = msgspec.json.decode(sys.stdin.buffer.readline(), type=Known | None)
        registry = (
            Registry.load(source) if len(sys.argv) > 1 else Registry.parse(_text(sys.stdin.buffer.read()), source)
        )
        registry.check_dates(utc_today(), source)
        if known:
            known.check(registry)
        sys.stdout.write(json.dumps(document_of(registry)))
    except NoRegistry as error:
        sys.stdout.buffer.write(error.short)
        return _NO_REGISTRY
    except DitherError as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "backslashreplace"))
        return _REFUSED
    except MemoryError:
        return _TOO_MUCH
    return 0


def _text(body: bytes) -> str:
    """Return the text of the registry that a body holds; raise NoRegistry."""
    try:
        given = BODY.decode(body)
    except msgspec.MsgspecError:
        raise NoRegistry(b"") from None
    text = given.get(REGISTRY)
    if len(given) == 1 and isinstance(text, str):
        return text
    wrong = [name for name in given if name != REGISTRY] or list(given)
    raise NoRegistry(msgspec.json.encode({name: None if given[name] is None else 0 for name in wrong[:1]}))


if __name__ == "__main__":
    sys.exit(main())
