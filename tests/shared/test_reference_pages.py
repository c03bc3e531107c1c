"""The reference pages name every key and limit of `metrics.toml`, and every answer of the aggregator."""

import re
import sys
from pathlib import Path

import pytest

from dither_shared.errors import RegistryError
from dither_shared.mechanisms.parameter_sets import PARAMETER_SETS
from dither_shared.registry import RESERVED_NAMES, Registry
from dither_shared.text_normalization import hidden
from dither_shared.wire.reading import PROBLEMS
from tests.support.registries import registry_text

SHARED = Path(__file__).parents[2] / "shared"
REGISTRY = (SHARED / "registry.md").read_text(encoding="utf-8")
WIRE = (SHARED / "wire.md").read_text(encoding="utf-8")
READING = re.compile(r"\b(?:table|head|given|inner|document)\.[a-z_]+\(\s*\"([a-z_]+)\"")


def test_every_key_that_is_read_is_on_the_page() -> None:
    rooms = (SHARED / "dither_shared" / "registry.py", *(SHARED / "dither_shared" / "kinds").glob("*.py"))
    keys = {key for path in rooms for key in READING.findall(path.read_text(encoding="utf-8"))} - {"metric"}
    assert {"epsilon", "quiet_days", "ticks_max", "parameter_set", "casefold", "linkable"} <= keys
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`]+`", REGISTRY))))
    assert keys - named == set()


def test_every_name_that_is_refused_and_every_parameter_set_is_on_the_page() -> None:
    assert {name for name in RESERVED_NAMES if f"`{name}`" not in REGISTRY} == set()
    assert {name for name in PARAMETER_SETS if f'`"{name}"`' not in REGISTRY} == set()


def limit(what: str) -> tuple[str, str]:
    """Return the least and the most of a row of the table of limits."""
    (row,) = re.findall(rf"^\| {re.escape(what)} \| ([^|]+) \| ([^|]+) \|$", REGISTRY, re.MULTILINE)
    return row[0].strip(), row[1].strip().replace(",", "")


def refused(text: str, key: str) -> bool:
    """Tell whether a registry is refused; for another key is a mistake of the test's."""
    try:
        Registry.parse(text)
    except RegistryError as error:
        if not re.search(rf"\b{key} must (be|hold) ", str(error)):
            raise
        return True
    return False


@pytest.mark.parametrize("key", ["quiet_days", "rev", "reports", "answers"])
def test_an_integer_has_the_limits_of_the_page(key: str) -> None:
    row = "`reports`, `answers`" if key in ("reports", "answers") else f"`{key}`"
    least, most = (int(end) for end in limit(row))
    memoized = {"epsilon_permanent": "0.02"} if key == "answers" else {}
    cheap = registry_text(epsilon="0.01", device_epsilon="1000", **memoized)  # type: ignore[arg-type]
    for value, fits in ((least - 1, False), (least, True), (most, True), (most + 1, False)):
        assert refused(re.sub(rf"^{key} = \d+$", f"{key} = {value}", cheap, flags=re.MULTILINE), key) is not fits


def test_the_device_has_the_most_epsilon_of_the_page() -> None:
    least, most = limit("`device_epsilon`")
    head, _, metrics = registry_text(epsilon=least, reports=1).partition("[metric.color]")
    a_flag = head + "[metric.dark]" + metrics.partition("[metric.dark]")[2]  # which takes the least there is
    for value in (least, most):
        Registry.parse(re.sub("device_epsilon = .*", f"device_epsilon = {value}", a_flag))
    for value in (f"{float(least) - 1e-6:f}", f"{float(most) + 1e-6:f}"):
        with pytest.raises(RegistryError, match=rf"device_epsilon must be a number from {least} to {most} "):
            Registry.parse(registry_text(device_epsilon=value))


@pytest.mark.parametrize("key", ["question", "owners"])
def test_a_text_has_the_length_of_the_page(key: str) -> None:
    most = int(limit(f"`{key}`")[1].replace(" of", "").split()[-2 if key == "owners" else 0])
    for length, fits in ((most, True), (most + 1, False)):
        value = '"' + "x" * length + '"'
        text = re.sub(
            rf"^{key} = .*$", f"{key} = {f'[{value}]' if key == 'owners' else value}", registry_text(), flags=re.M
        )
        assert refused(text, key) is not fits


def test_lists_have_the_lengths_of_the_page() -> None:
    most = int(limit("`owners`")[1].split()[0])
    for number, fits in ((most, True), (most + 1, False)):
        owners = ", ".join(f'"{place}"' for place in range(number))
        assert (
            refused(re.sub(r"^owners = .*$", f"owners = [{owners}]", registry_text(), flags=re.M), "owners") is not fits
        )
    head = registry_text().partition("[metric.color]")[0]
    least, most = map(int, limit("metrics of an app"))
    for number, words in (
        (least - 1, f"metric must hold {least} to {most} tables"),
        (least, r"metric\.m0: kind is missing"),
        (most, r"metric\.m0: kind is missing"),
        (most + 1, f"metric must hold {least} to {most} tables"),
    ):
        metrics = "".join(f"[metric.m{place}]\nrev = 1\n" for place in range(number)) or "[metric]\n"
        with pytest.raises(RegistryError, match=words):
            Registry.parse(head + metrics)


GLEAN = {
    *("boolean", "labeled_boolean", "counter", "labeled_counter", "dual_labeled_counter", "string", "labeled_string"),
    *("string_list", "timespan", "timing_distribution", "labeled_timing_distribution", "memory_distribution"),
    *("labeled_memory_distribution", "custom_distribution", "labeled_custom_distribution", "uuid", "url", "datetime"),
    *("event", "quantity", "labeled_quantity", "rate", "text", "object"),
}
"""The types of the reference of metrics in the Glean book, mozilla/glean docs/user/reference/metrics."""


def kinds_of(section: str) -> dict[str, str]:
    """Return the kind of each row of a table of types."""
    rows = re.findall(
        r"^\| (.+?) \| (`\w+`|cannot) \|", REGISTRY.partition(section)[2].partition("```")[0], re.MULTILINE
    )
    return {name: kind.strip("`") for names, kind in rows for name in names.replace("`", "").split(", ")}


def loaded(section: str) -> Registry:
    """Return the registry of a section, with the keys that every metric needs."""
    block = REGISTRY.partition(section)[2].partition("```toml\n")[2].partition("```")[0]
    common = registry_text().partition("[metric.dark]")[2].partition("\n")[2].replace('kind = "flag"\n', "")
    asked = re.sub(r"^\[metric\.\w+\]$", lambda head: f"{head[0]}\n{common}", block, flags=re.MULTILINE)
    return Registry.parse(registry_text(device_epsilon="1000").partition("[metric.color]")[0] + asked)


def test_each_type_of_glean_has_a_kind_and_an_example_or_none_and_a_reason() -> None:
    kinds, registry = kinds_of("### Glean"), loaded("### Glean")
    assert kinds.keys() == GLEAN
    assert {name for name, kind in kinds.items() if kind == "cannot"} == {"uuid"}
    assert {name: metric.kind.name for name, metric in registry.metrics.items()} | {"uuid": "cannot"} == kinds
    assert registry.unused == ()


def test_each_kind_of_metric_of_ukm_has_an_example() -> None:
    kinds = kinds_of("### UKM")
    examples = {metric.kind.name for metric in loaded("### UKM").metrics.values()}
    assert len(kinds) >= 11
    assert set(kinds.values()) == examples | {"cannot"}


def test_every_example_in_toml_is_read() -> None:
    assert REGISTRY.count("```toml") == 2
    lists = re.findall(r"^    (\[values\.\w+\])\n    (.*)$", REGISTRY, re.MULTILINE)
    for head, values in lists:
        parsed = Registry.parse(f"{registry_text()}\n{head}\n{values}\n")
        assert parsed.unused == (head.strip("[]").partition(".")[2],)
    assert lists


def test_the_characters_that_nobody_sees_are_those_of_the_page() -> None:
    listed = WIRE.partition("**Characters that nobody sees:**")[2].partition("\n\n")[0]
    ranges = re.findall(r"\b([0-9A-F]{4,6})(?:-([0-9A-F]{4,6}))?\b", listed)
    points = {point for first, last in ranges for point in range(int(first, 16), int(last or first, 16) + 1)}
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert points == set(map(ord, hidden().findall(every)))


def test_every_answer_has_its_word_on_the_page() -> None:
    table = WIRE.partition("| status | `type` ends with |")[2].partition("\n\n")[0]
    named = {
        (word, status)
        for row in table.splitlines()[2:]
        for word in re.findall(r"`([a-z-]+)`", row)
        for status in map(int, re.findall(r"\b[45]\d\d\b", row))
    }
    assert {word for word, _ in named} == set(PROBLEMS)
    assert {(word, status) for word, (status, _) in PROBLEMS.items()} <= named
