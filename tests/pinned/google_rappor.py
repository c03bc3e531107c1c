"""google/rappor's files through `dither rappor`, and its reports through the wire."""

import io
import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from dither.cli import main
from tests.pinned.adapter import Aggregator
from tests.pinned.registries import registry_of


def command(files: Mapping[str, str], arguments: Sequence[str]) -> dict[str, Any]:
    """Run `dither rappor` beside these files; a JSON document that it prints is read, without how long it took."""
    out, err = io.StringIO(), io.StringIO()
    with _directory(files), redirect_stdout(out), redirect_stderr(err):
        code = main(["rappor", *arguments])
    printed: Any = out.getvalue()
    if code == 0 and "--json" in arguments:
        printed = json.loads(printed)
        del printed["summary"]["seconds"]
    return {"code": code, "out": printed, "err": err.getvalue()}


def imported(files: Mapping[str, str], metric: str) -> dict[str, Any]:
    """Import the reports, and return what became of them and what they show."""
    with _directory(files), Aggregator(Path("store")) as aggregator:
        aggregator.load(files["metrics.toml"])
        became = aggregator.import_google(metric)
        aggregator.fold()
        aggregator.travel(2)
        aggregator.maintain()
        return {**became, "ledger": aggregator.ledger(), "read": aggregator.read(metric)}


class _directory(tempfile.TemporaryDirectory[str]):  # noqa: N801
    """A directory with the files, in which one is."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__()
        for name, content in files.items():
            (Path(self.name) / name).write_text(content, encoding="utf-8")
        self._there = chdir(self.name)

    def __enter__(self) -> str:
        self._there.__enter__()
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._there.__exit__(*exc_info)
        super().__exit__(*exc_info)


# Drawing the files: for the generator alone.

PARAMS = {"params.csv": "k,h,m,p,q,f\n16,2,64,0.5,0.75,0.5\n"}
NAMES = [f"v{number}" for number in range(1, 13)]
TEXT = """name = word
kind = "text"
memoize = true
answers = 1
epsilon = 1.074286
epsilon_permanent = 4.39445
parameter_set = "google_default"
candidates = ["v1", "v2", "v3", "nobody"]
"""


def pinned() -> dict[str, Any]:
    """Return the vectors of google_rappor.json."""
    commands = []
    for name, files, arguments in _drawn():
        commands.append({"name": name, "files": files, "arguments": arguments, **command(files, arguments)})
    files = {**PARAMS, **_reports(PARAMS, 1_200), "metrics.toml": registry_of(TEXT)}
    return {"commands": commands, "import": {"files": files, "metric": "word", "pinned": imported(files, "word")}}


def _drawn() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    few = {"params.csv": "k,h,m,p,q,f\n8,2,4,0.25,0.75,0.5\n"}
    exact = {"params.csv": "k,h,m,p,q,f\n16,1,8,0.25,0.75,0\n"}
    listed = {"candidates.txt": "".join(f"{name}\n" for name in [*NAMES, "größer", "a,b", " spaces "])}
    hash_, sum_ = ["hash-candidates", "candidates.txt"], ["sum-bits", "reports.csv"]
    yield "a map", {**PARAMS, **listed}, [*hash_, "--params", "params.csv"]
    yield "a map as Java hashes", {**few, **listed}, [*hash_, "--params", "params.csv", "--java"]
    reports = _reports(few, 150)
    yield "counts, two rows refused", {**few, **reports}, [*sum_, "--params", "params.csv"]
    for name, params, strings, n in (
        ("decoded", exact, NAMES[:6], 1_500),
        ("decoded, the list misses some", few, NAMES[2:4], 4_000),
        ("decoded, more candidates than equations can bear", few, [*NAMES, *(f"w{one}" for one in range(20))], 4_000),
        ("decoded, few reports", few, NAMES[:4], 40),
    ):
        files = {**params, "map.csv": _map(params, strings), "counts.csv": _counts(params, n)}
        decode = ["decode", *(word for one in ("params", "map", "counts") for word in (f"--{one}", f"{one}.csv"))]
        yield name, files, [*decode, "--json"]
        yield f"{name}, as a table", files, [*decode, "--all"]
    yield "counts that cannot be", {**few, **listed, "counts.csv": "1,2\n", "map.csv": _map(few, NAMES)}, decode


def _map(params: Mapping[str, str], values: Sequence[str]) -> str:
    files = {**params, "candidates.txt": "".join(f"{value}\n" for value in values)}
    printed: str = command(files, ["hash-candidates", "--params", "params.csv", "candidates.txt"])["out"]
    return printed


def _counts(params: Mapping[str, str], n: int) -> str:
    """Count the bits of n reports."""
    k, _, m = map(int, params["params.csv"].splitlines()[1].split(",")[:3])
    rows = [[0] * (k + 1) for _ in range(m)]
    for cell, bits in _draw(params, n):
        rows[cell][0] += 1
        for bit in range(k):
            rows[cell][1 + bit] += bits >> bit & 1
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def _reports(params: Mapping[str, str], n: int) -> dict[str, str]:
    """Return a file of n reports, two rows of which are none."""
    k, _, m = map(int, params["params.csv"].splitlines()[1].split(",")[:3])
    rows = [f"c{number},{cell},{bits:0{k}b}" for number, (cell, bits) in enumerate(_draw(params, n))]
    rows[10], rows[20] = f"c10,{m},{0:0{k}b}", f"c20,1,{'x' * k}"
    return {"reports.csv": "\n".join(["client,cohort,irr", *rows, ""])}


def _draw(params: Mapping[str, str], n: int) -> Iterator[tuple[int, int]]:
    """Draw the cell and the bits of n reports of the first ten strings, the first ones often."""
    k, h, m, p, q, f = map(float, params["params.csv"].splitlines()[1].split(","))
    strings = [[int(index) for index in line.split(",")[1:]] for line in _map(params, NAMES[:10]).splitlines()]
    rng = random.Random(f"reports {n} {k}")
    for _ in range(n):
        string, cell = rng.choices(strings, [1 / place for place in range(1, 11)])[0], rng.randrange(int(m))
        held = {index - 1 - cell * int(k) for index in string[cell * int(h) : (cell + 1) * int(h)]}
        memo = [rng.random() < f / 2 + (1 - f) * (bit in held) for bit in range(int(k))]
        yield cell, sum((rng.random() < (q if one else p)) << bit for bit, one in enumerate(memo))
