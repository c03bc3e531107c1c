"""How much house there is, and how far one answer travels through it: `python -m tests.house [--json]`.

Figures, and not limits: `make check` prints them, so that each change sees what it does. A switch is a call whose
function stands in another file than that of the call before it, in the product's own code and the thread that asks. A
generator is called once, however often it goes on.
"""

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
ROOMS = tuple(ROOT / room for room in ("client/dither", "aggregator/dither_aggregator", "shared/dither_shared"))
STEPS = ("record", "append", "fold", "page")
CAST = re.compile(r"\bcast\(")
TOUCHES = {
    "a kind, as that of tables": re.compile(r"tables?$|Tables?(?![a-z])|_tables?(?![a-z])"),
    "a stored document, as what reports told": re.compile(r"ToldMoves$"),
    "a stored document that API, pages and commands show, as marks": re.compile(r"DayMark$"),
}
"""Names of what is there already: a new one of its sort has to be named where this one is."""


@cache
def sources() -> dict[Path, str]:
    """Return the product's Python files with their texts."""
    return {path: path.read_text(encoding="utf-8") for room in ROOMS for path in sorted(room.rglob("*.py"))}


def names(text: str) -> set[str]:
    """Return the names that a file defines or uses, its modules' included."""
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.ImportFrom(module=module, names=aliases):
                found |= {*(module or "").split("."), *(alias.name for alias in aliases)}
            case ast.keyword(arg=str(name)) | ast.arg(arg=name):
                found.add(name)
    return found


def touched(pattern: re.Pattern[str]) -> int:
    """Return in how many files a name is of a sort."""
    return sum(any(map(pattern.search, names(text))) for text in sources().values())


class Travel:
    """The files that calls went through, by `sys.setprofile`."""

    def __init__(self) -> None:
        self.files = set[str]()
        self.switches = 0
        self._last = ""
        self._generators = set[FrameType]()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        place = frame.f_code.co_filename
        if event != "call" or not place.startswith(tuple(map(str, ROOMS))) or frame.f_code.co_name == "<module>":
            return
        if frame.f_code.co_flags & CO_GENERATOR:
            if frame in self._generators:  # it goes on, as a template does after each block: nobody calls it
                return
            self._generators.add(frame)
        self.switches += place != self._last
        self._last = place
        self.files.add(place)

    def of(self, step: Callable[[], object]) -> "Travel":
        sys.setprofile(self)
        try:
            step()
        finally:
            sys.setprofile(None)
        return self


def travel(step: str, directory: Path) -> Travel:
    """Take one step of an answer, in a process that has taken none, and return how far it went.

    The registry has a choice and a flag, as those of the tests have.
    """
    from dither_aggregator.store import SQLiteStore
    from dither_shared.wire.reading import parse_upload
    from tests.support.aggregators import operators_app
    from tests.support.registries import registry
    from tests.support.stores import body_of

    asked = registry()
    if step == "record":
        import dither

        with dither.start(asked, endpoint="http://127.0.0.1:9", key="k", data_dir=directory, consent=True) as telemetry:
            return Travel().of(lambda: telemetry.color.record("red"))
    SQLiteStore.create(directory, asked.app).close()
    with closing(SQLiteStore(directory)) as store:
        store.load(asked)
        body = body_of(asked, {"color": [0], "dark": [1]})
        appended = Travel().of(lambda: store.append([(parse_upload(body, store.find_plan), body)]))
        assert sum(status.backlog for status in store.status()) == 1
        if step == "append":
            return appended
        folded = Travel()
        for shard in range(store.shards):
            folded.of(lambda shard=shard: store.fold_all(shard))  # type: ignore[misc]
        if step == "fold":
            return folded
        client = operators_app(store).test_client()
        return Travel().of(lambda: client.get("/metrics/color"))


def figures() -> dict[str, str | int]:
    """Return all figures, by what they are of."""
    texts = sources().values()
    found: dict[str, str | int] = {
        "lines of the product": sum(text.count("\n") for text in texts),
        "files of the product": len(texts),
        "lines of tests": sum(path.read_text("utf-8").count("\n") for path in (ROOT / "tests").rglob("*.py")),
    }
    for step in STEPS:
        files, switches = subprocess.check_output(
            [sys.executable, "-m", "tests.house", step], cwd=ROOT, text=True
        ).split()
        found[f"files / switches of {NAMES[step]}"] = f"{files} / {switches}"
    found |= {f"files that know of {what}": touched(pattern) for what, pattern in TOUCHES.items()}
    return found | {"casts": sum(len(CAST.findall(text)) for text in texts)}


NAMES = {
    "record": "the first record() of a process",
    "append": "parsing and appending an upload",
    "fold": "folding it",
    "page": "the page of a choice, cold",
}


def main(words: list[str]) -> None:
    """Print what was asked for."""
    if words and words[0] in STEPS:
        with tempfile.TemporaryDirectory() as directory:
            gone = travel(words[0], Path(directory))
        print(len(gone.files), gone.switches)
    elif words == ["--json"]:
        print(json.dumps(figures(), indent=2))
    else:
        for what, figure in figures().items():
            print(f"{figure:>12}  {what}")


if __name__ == "__main__":
    main(sys.argv[1:])
