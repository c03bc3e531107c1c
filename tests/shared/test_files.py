"""Files that a person names may be anything. Each is read by a program of its own, which may neither wait nor grow."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

from dither.cli import main
from dither_shared.errors import RegistryError
from dither_shared.files import parse_toml
from dither_shared.registry import REGISTRY_BYTES_MAX, Registry
from dither_shared.toml_tables import MISTAKES_MAX
from tests.support.registries import registry, registry_text
from tests.support.soaking import scaled

READ_KB_MAX, READ_WITHIN_S = scaled(150, 600) * 1024, scaled(3, 20)
READER = """
import resource, sys, time
from pathlib import Path
from dither_shared.errors import DitherError
from dither_shared.files import parse_toml
from dither_shared.registry import Registry
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))  # code that fails takes no more of the machine
for line in sys.stdin:
    began = time.process_time()
    try:
        Registry.load(line.strip())
        said = ""
    except DitherError as error:
        said = str(error)
    took_s = time.process_time() - began
    most = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(took_s, most, *said.split("\\n"), sep="\\t", flush=True)
"""


Reader = Callable[[Path], list[str]]


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    """Give what reads a registry within bounds and returns the mistakes: one program, since each would take a second to
    start.
    """
    with subprocess.Popen(
        [sys.executable, "-c", READER], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdin
        assert reader.stdout
        asked, said = reader.stdin, reader.stdout

        def ask(path: Path) -> list[str]:
            print(path, file=asked, flush=True)
            took_s, size_kb, *mistakes = said.readline().rstrip("\n").split("\t")
            assert float(took_s) < READ_WITHIN_S
            assert int(size_kb) < READ_KB_MAX
            return mistakes

        yield ask
        reader.stdin.close()


def naming(directory: Path, named: Path) -> Path:
    """Write a registry whose values are in a file."""
    path = directory / "metrics.toml"
    path.write_text(registry_text().replace('values = ["red", "green", "blue"]', f'values_file = "{named}"'), "utf-8")
    return path


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Return a file that takes no room and is longer than any that is read."""
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(100 * 1024**3)
    return path


def test_a_pipe_or_a_device_is_no_list_of_values(tmp_path: Path, fifo: Path, read: Reader) -> None:
    for named in (fifo, Path("/dev/zero")):
        (said,) = read(naming(tmp_path, named))
        assert f"{named} cannot be read: it is no regular file" in said


def test_a_pipe_or_a_device_is_no_registry(fifo: Path, read: Reader) -> None:
    for path in (fifo, Path("/dev/zero")):
        assert read(path) == [f"{path}: cannot be read: it is no regular file"]


def test_a_file_that_is_too_long_is_read_no_further(tmp_path: Path, endless: Path, read: Reader) -> None:
    (said,) = read(naming(tmp_path, endless))
    assert f"{endless} cannot be read: it has more than " in said
    assert read(endless) == [f"{endless}: cannot be read: it has more than {REGISTRY_BYTES_MAX:,} bytes"]


def test_the_command_ends_with_a_mistake_where_a_file_cannot_be_read(
    fifo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", "check", str(fifo)]) == 2
    assert capsys.readouterr().err == f"dither: {fifo}: cannot be read: it is no regular file\n"


def test_the_longest_list_there_may_be_is_read(tmp_path: Path) -> None:
    """Each line has 200 characters of four bytes, and ends with the longest separator."""
    lines = [f"{number:0>3}".ljust(200, "\U0001f600") for number in range(300)]
    (tmp_path / "values.txt").write_bytes("\r\n".join([*lines, ""]).encode())
    assert Registry.load(naming(tmp_path, tmp_path / "values.txt")).metrics["color"].values == (*lines, "other")


def test_a_registry_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8-sig")
    assert Registry.load(path) == registry()
    path.write_bytes(registry_text().replace("\n", "\r\n").encode("utf-8-sig"))
    assert Registry.load(path) == registry()
    path.write_bytes("\ufeff\ufeff".encode())
    with pytest.raises(RegistryError, match="must be TOML"):
        Registry.load(path)


MANY = scaled(600_000, 10_000_000)
SLOW = scaled(200_000, 10_000_000)
"""As many where nothing is counted before it is parsed: no limit is near."""


@cache
def hostile() -> dict[str, str]:
    """Return registries that take long or grow, by what they are. Making them takes half a second."""
    return {
        "a key of many parts": "a" + ".a" * 25_000 + " = 1",
        "a key of many parts in a table within a list": "a = [{" + "a" + ".a" * 25_000 + " = 1}]",
        "a key of many parts behind a string of many quotes": 'a = [{b = """a"""", a'
        + ".a" * 25_000
        + ' = 1, c = ""}]',
        "a table of many parts": "[a" + ".a" * 25_000 + "]",
        "many keys of many parts": "\n".join(f"k{number}" + ".a" * 200 + " = 1" for number in range(MANY // 500)),
        "many keys": "\n".join(f"k{number} = 1" for number in range(MANY // 5)),
        "many tables": "\n".join(f"[t{number}]" for number in range(MANY // 5)),
        "many tables of eight parts": "\n".join(f"[k{number}.a.b.c.d.e.f.g]" for number in range(99_000)),
        "many long numbers": "a = [" + f"0x{'f' * 996}, " * (SLOW // 500) + "]",
        "many tables of one list": "[[t]]\n" * (MANY // 3),
        "many items": "a = [" + "1," * MANY + "]",
        "many lists": "a = [" + "[]," * MANY + "]",
        "lists in lists": "a = " + "[" * MANY,
        "tables in tables": "a = " + "{a=" * 500 + "1" + "}" * 500,
        "a long name": "[metric." + "a" * MANY + "]",
        "a name in colours": '[metric."\\u001b[7m' + "\\u202e" * 100_000 + '"]',
        "names like one that is missing": "[registry]\n"
        + "\n".join(f"ap{number}p = 1" for number in range(SLOW // 20)),
        "quotes": '"' * MANY,
        "escapes": '"\\' * SLOW,
        "strings that nothing ends": '"""\n"' * (MANY // 2),
        "dots": "." * MANY,
        "digits": "a = " + "9" * MANY,
        "a number of a high exponent": "a = 1e999999999999",
        "comments": "#\n" * SLOW,
    }


TEXT = (
    registry_text()
    .replace('kind = "choice"', 'kind = "text"')
    .replace('values = ["red", "green", "blue"]', 'candidates_file = "candidates.txt"')
)


def test_a_hostile_registry_is_refused_in_words_within_bounds(tmp_path: Path, read: Reader) -> None:
    (tmp_path / "candidates.txt").write_bytes(b"\n" * (20 * scaled(1_000_000, 10_000_000)))
    for number, (name, text) in enumerate([*hostile().items(), ("a list of ends of lines", TEXT)]):
        path = tmp_path / f"{number} {name}.toml"
        path.write_text(text, encoding="utf-8")
        mistakes = read(path)
        assert 1 <= len(mistakes) <= MISTAKES_MAX + 1, name
        for said in mistakes:
            assert said.startswith((f"{path}: ", "and ")), name
            assert len(said) < 2_000 + len(str(path)) + 10, name
            assert said.isprintable(), name
        path.unlink()


@pytest.mark.parametrize("number", ["9" * 5_000, "1e" + "9" * 50, "-1e-" + "9" * 50])
def test_a_number_that_is_too_long_is_refused_in_words(number: str) -> None:
    with pytest.raises(ValueError, match=r"^a number is too long, or its exponent is$"):
        parse_toml(f"a = {number}")


def test_numbers_with_points_are_no_parts_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "edges = [" + "1.5, " * 1_001 + "]"
    monkeypatch.setattr("dither_shared.files.KEYS_MAX", 1_000)
    assert len(parse_toml(text)["edges"]) == 1_001


TANGLED = """
[registry]
app = "a" # [[[[[[[[[[ a.b.c.d.e.f.g.h.i.j.k
words = ["a.b.c.d.e.f.g.h.i.j.k", 'a.b.c.d.e.f.g.h.i.j.k"', '''[[[[[[[[[['''', \"\"\"{{{{\"{{{{{{{
a.b.c.d.e.f.g.h.i.j.k = \"\"\"\"\", "\\\\", "\\"a.b.c.d.e.f.g.h.i.j.k"]
"a.b.c.d.e.f.g.h.i.j.k" . b . c = [[[[[[[1]]]]]], 1.5, {a = {b = {c = [{}]}}}]
"""


@pytest.mark.parametrize("text", [TANGLED, registry_text(), "", "\ufeff"])
def test_text_within_strings_and_comments_is_no_key(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither_shared.files._SHORT", -1)
    assert parse_toml(text) == tomllib.loads(text.removeprefix("\ufeff"), parse_float=Decimal)
    with pytest.raises(ValueError, match="a key must have at most 8 parts"):
        parse_toml(text + "\nb . c.d.e.f.g.h.'i' .j = 1")
    with pytest.raises(ValueError, match="nested at most 8 deep"):
        parse_toml(text + "\nb = [[[[[[[[[]]]]]]]]]")
