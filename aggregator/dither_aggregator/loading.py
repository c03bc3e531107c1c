"""A registry that comes while uploads are taken: a process of its own reads it, within limits, and says what is in it.

The process knows the shared code alone. It is nicer than the server, as readers are.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from dither_shared.errors import DitherError, RegistryError
from dither_shared.registry import Registry, utc_today

PROCESSOR_S = 20
READ_WITHIN_S = 60
"""By the clock: uploads come first."""
MEMORY_BYTES_MAX = 512 * 1024 * 1024
_REFUSED, _TOO_MUCH = 2, 3


def read_apart(registry: str | Path) -> dict[str, Any]:
    """Read a registry, its text or its file; return what `Offered.from_document` makes plans of.

    Raises RegistryError as `Registry.load` does, and for one that takes too long or too much memory.
    """
    path = str(registry) if isinstance(registry, Path) else ""
    source = path or "registry"
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
        give_way(process=process.pid)  # from its first step: to start takes longer than most registries do
        try:
            said, _ = process.communicate(
                b"" if path else str(registry).encode("utf-8", "surrogatepass"), READ_WITHIN_S
            )
        except subprocess.TimeoutExpired:
            raise too_much from None
        finally:
            process.kill()  # where it has not ended
    if process.returncode == _REFUSED:
        raise RegistryError(said.decode())
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
    source = sys.argv[1] if len(sys.argv) > 1 else "registry"
    try:
        if len(sys.argv) > 1:
            registry = Registry.load(source)
        else:
            registry = Registry.parse(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"), source)
        registry.check_dates(utc_today(), source)
        sys.stdout.write(json.dumps(document_of(registry)))
    except DitherError as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "backslashreplace"))
        return _REFUSED
    except MemoryError:
        return _TOO_MUCH
    return 0


if __name__ == "__main__":
    sys.exit(main())
