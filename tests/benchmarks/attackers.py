"""Clients that would wear a server out, in a process of their own: it attacks until its stdin ends.

    python -m tests.benchmarks.attackers NAME URL KEY PLAN    # PLAN is the digest of the plan that uploads are of

It prints a line when every connection was begun, and one with what it did, as JSON, at its end.
"""

import json
import os
import resource
import secrets
import sys

from dither_shared.kinds.kind import CANDIDATES_MAX
from tests.benchmarks.swarm import Attacker, Swarm
from tests.benchmarks.uploads import post

NICE = 10
"""Good uploads share a core with the attackers, and must not wait for those."""
SPARE_FILES = 64
WIDE, TEXT = "choice_1", "text_2"
ADMIN = f"dither_admin_{'0' * 8}_{'a' * 32}"
"""The text of the admin key that servers under attack know. The store's module of keys would import numpy, for each."""
FOREIGN = """
[registry]
app = "another"
device_epsilon = 9.0

[metric.words]
rev = 1
kind = "text"
question = "Which words?"
epsilon = 1.0
reports = 1
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = 2026-12-30
"""
PAGE, ESTIMATES = f"/metrics/{WIDE}?window=today", f"/v1/metrics/{WIDE}/estimates?window=today"


class Idle(Attacker):
    """Connects, and says nothing more; every other one has said a letter."""

    def begin(self) -> bytes:
        return b"G" if self.place % 2 else b""


class Slow(Attacker):
    """Sends a byte a second of an upload: of its head, or of its body."""

    number = 500
    tick_s = 1.0

    def begin(self) -> bytes:
        request = self.upload()
        begun = request.index(b"\r\n\r\n") + 5 if self.place % 2 else 1
        self._rest = iter(request[begun:])
        return request[:begun]

    def tick(self) -> bytes | None:
        return bytes([next(self._rest, 0x20)])


class Pipelining(Attacker):
    """Sends requests as fast as the socket takes them, and reads no answer: uploads, lists or pages."""

    number = 30
    reads = False
    endless = True
    buffer_bytes = 4_096

    def begin(self) -> bytes:
        return self.more()

    def more(self) -> bytes:
        kind = self.place % 3
        if kind == 0:
            return b"".join(self.upload() for _ in range(32))
        return self.get("/v1/metrics" if kind == 1 else PAGE) * 256


class WrongKeys(Attacker):
    """Uploads with a wrong key, the next one as soon as it is refused."""

    number = 64
    again_s = 0.0

    def __init__(self, place: int, url: str, key: str, plan: str) -> None:
        super().__init__(place, url, "x" * len(key), plan)

    def begin(self) -> bytes:
        return self.upload()

    def answered(self) -> bytes:
        return self.upload()


class NeverReading(Attacker):
    """Asks for something long, and reads nothing of it."""

    number = 64
    reads = False
    buffer_bytes = 4_096

    def begin(self) -> bytes:
        return self.get((f"/v1/metrics/{WIDE}/values", ESTIMATES, f"{ESTIMATES}&format=csv", PAGE)[self.place % 4])


class Reader(Attacker):
    """Reads the page or the estimates of 50,000 values, again and again."""

    number = 4

    def begin(self) -> bytes:
        return self.get((PAGE, ESTIMATES)[self.place % 2])

    def answered(self) -> bytes:
        return self.begin()


class Candidates(Attacker):
    """Has texts looked for, as many as may be, another list each time. Every other one leaves before the answer."""

    number = 8
    tick_s = 1.0

    def __init__(self, place: int, url: str, key: str, plan: str) -> None:
        super().__init__(place, url, key, plan)
        listed = [f"c{number:06d}" for number in range(CANDIDATES_MAX - 1)]
        body = json.dumps({"candidates": ["?" * 16, *listed]}, separators=(",", ":")).encode("ascii")
        self._before, _, self._after = post(url, f"/v1/metrics/{TEXT}/estimates?window=today", body).partition(
            b"?" * 16
        )

    def begin(self) -> bytes:
        return self._before + secrets.token_hex(8).encode("ascii") + self._after

    def answered(self) -> bytes:
        return self.begin()

    def tick(self) -> bytes | None:
        return None if self.place % 2 else b""


class Registries(Attacker):
    """Loads registries with an admin key that are hostile, or as large as may be and another app's."""

    number = 4
    first = 0

    def __init__(self, place: int, url: str, key: str, plan: str) -> None:
        super().__init__(place, url, key, plan)
        listed = ", ".join(f'"c{number:06d}"' for number in range(CANDIDATES_MAX))
        large = f"{FOREIGN}candidates = [{listed}]\n"
        texts = ("a" + ".a" * 25_000 + " = 1", "a = [" + "1," * 1_000_000 + "]", "[t]\n" * 400_000, large)
        body = json.dumps({"registry": texts[self.first + place]}, separators=(",", ":")).encode("ascii")
        self._load = post(url, "/v1/admin/registry/load", body, f"Authorization: Bearer {ADMIN}\r\n")

    def begin(self) -> bytes:
        return self._load

    def answered(self) -> bytes:
        return self._load


class SmallRegistries(Registries):
    """One that sends hostile registries of 50 KB, the next as soon as one is refused."""

    number = 1


class LargeRegistries(Registries):
    """One that sends another app's registry, as large as may be, as soon as the last is refused."""

    number, first = 1, 3


class Bodies(Registries):
    """Sends bodies with an admin key that hold lists, however many and however deep: two a second."""

    tick_s = 0.5

    def __init__(self, place: int, url: str, key: str, plan: str) -> None:
        super().__init__(place, url, key, plan)
        ids = ("[],", '"",', '{"a":[[[[', "1e9,")[place]
        body = b'{"ids":[' + (ids * (2_000_000 // len(ids)))[:-1].encode("ascii") + b"]}"
        self._load = post(url, "/v1/admin/quarantine/drop", body, f"Authorization: Bearer {ADMIN}\r\n")

    def answered(self) -> bytes:
        return b""

    def tick(self) -> bytes:
        return self._load


ATTACKERS: dict[str, type[Attacker]] = {
    "slow": Slow,
    "pipelining": Pipelining,
    "idle": Idle,
    "wrong-keys": WrongKeys,
    "never-reading": NeverReading,
    "readers": Reader,
    "candidates": Candidates,
    "registries": Registries,
    "small-registries": SmallRegistries,
    "large-registries": LargeRegistries,
    "bodies": Bodies,
}
ADMINS = ("registries", "small-registries", "large-registries", "bodies")
"""Attackers with an admin key."""
APART = (*ADMINS, "candidates")
"""Attackers whose bodies a process of its own reads."""


def main() -> None:
    """Attack."""
    name, url, key, plan = sys.argv[1:]
    os.nice(NICE)
    kind = ATTACKERS[name]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = kind.number + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f"{needed} files must be allowed, got {hard}: raise the hard limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    swarm = Swarm(url, [kind(place, url, key, plan) for place in range(kind.number)])
    swarm.begin()
    print("begun", flush=True)
    swarm.run(sys.stdin.fileno())
    print(json.dumps(swarm.done), flush=True)


if __name__ == "__main__":
    main()
