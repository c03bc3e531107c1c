import json
import re
import sys
from hashlib import sha256
from pathlib import Path

import pytest

import dither_shared.published
from dither_shared.errors import RegistryError
from dither_shared.published import LISTS, published
from dither_shared.registry import Metric, Registry
from tests import published_lists as making
from tests.support.registries import registry, registry_text
from tests.support.soaking import thinned

FILES = Path(dither_shared.published.__file__).parent
PAGE = Path(__file__).parents[2] / "shared" / "registry.md"


def named(name: str) -> str:
    return f"{name}@{sha256((FILES / f'{name}.txt').read_bytes()).hexdigest()}"


def choice_of(name: str) -> Metric:
    return Registry.parse(registry_text().replace('["red", "green", "blue"]', f'"{name}"')).metrics["color"]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_told_by_its_digest_and_the_page_names_it(name: str) -> None:
    values = published(named(name))
    assert len(values) == len(set(values)) > 200
    (row,) = re.findall(rf'\| `"({name}@[0-9a-f]{{8}})"` \| ([0-9,]+) ', PAGE.read_text("utf-8"))
    assert published(row[0]) == values
    assert int(row[1].replace(",", "")) == len(values)


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(LISTS, LISTS.index("iana-media-types")))
def test_a_list_is_made_again_of_its_source_to_the_byte(name: str) -> None:
    assert making.made(name).encode() == (FILES / f"{name}.txt").read_bytes()


def test_every_list_has_a_source_and_an_archive_of_another_edition_is_refused(tmp_path: Path) -> None:
    assert tuple(sorted(making.LISTS)) == LISTS
    source, _ = making.LISTS["iso-countries"]
    archive = tmp_path / "tzdata.whl"
    archive.write_bytes(b"another")
    with pytest.raises(making.WrongSource, match=r"tzdata 2025\.2 must have SHA-256 1a403fad.*, got [0-9a-f]{64}"):
        source.text_of(archive)


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["planets"], 2), (["--all"], 2)])
def test_nothing_is_fetched_for_whoever_asks_for_help_or_no_list(arguments: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        making.names(arguments)
    assert ended.value.code == code
    assert making.names(["iso-countries"]) == ["iso-countries"]
    assert making.names([]) == [*making.LISTS]


def test_what_a_list_takes_of_its_source() -> None:
    tab = "# code\tname\nDE\tEurope\tBerlin\nAD\tEurope\tAndorra\n"
    assert making.written(making.countries(tab)) == "AD\nDE\n"
    zones = set(making.zones("# code\nDE\t+5230+01322\tEurope/Berlin\tmost of Germany\n"))
    assert zones == {"Europe/Berlin", "UTC"} | making.OLDER_ZONES
    named = {"de": "German", "und": "Unknown language", "zh-Hant": "Traditional Chinese"}
    languages = json.dumps({"main": {"en": {"localeDisplayNames": {"languages": named}}}})
    assert list(making.languages(languages)) == ["de"]
    types = {"text/HTML": {"source": "iana"}, "text/own": {"source": "apache"}, "text/none": {}}
    assert list(making.media_types(json.dumps(types))) == ["text/html"]
    listed = "// мкд : a note\nмкд\n*.ck\n!www.ck\n\nco.uk // old\n"
    assert list(making.suffixes(listed)) == ["xn--d1alf", "co.uk"]
    known = {"name": "Safari", "type": "desktop", "releases": {"18.4": {}, "26": {"status": "planned"}}}
    servers = {"name": "Node.js", "type": "server", "releases": {"24.0": {}}}
    browsers = json.dumps({"browsers": {"safari": known, "nodejs": servers}})
    assert list(making.browsers(browsers)) == ["Safari 18.4", "Safari 26"]


def test_a_registry_names_a_list_as_candidates_and_as_values() -> None:
    text = registry(kind="text", reports=1, color=f'candidates = "{named("iso-countries")}"').metrics["color"]
    assert text.asked.candidates == published(named("iso-countries"))
    choice = choice_of(named("iso-countries"))
    assert choice.asked.domain.values == (*published(named("iso-countries")), "other")


def test_another_edition_is_refused_with_the_one_that_is_there() -> None:
    with pytest.raises(RegistryError, match=r'dither has the edition "iso-countries@[0-9a-f]{8}"'):
        choice_of("iso-countries@01234567")
    with pytest.raises(RegistryError, match=r'dither has the edition "iso-countries@[0-9a-f]{8}"'):
        choice_of("iso-countries")
    with pytest.raises(RegistryError, match="there must be such a list: bcp47-languages, "):
        choice_of("planets@01234567")


def test_an_app_alone_is_told_what_brings_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dither_shared.published", None)
    with pytest.raises(RegistryError, match="install dither-aggregator"):
        choice_of(named("iso-countries"))
