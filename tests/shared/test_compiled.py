"""The compiled form of a registry: it is the same registry, and one that is not whole is refused in words."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs  # in no time, where jsonschema takes two seconds to import, in every process of tests
import pytest

from dither.commands.metrics.compiling import document_of
from dither_shared.compiled import FORMAT, read
from dither_shared.errors import RegistryError
from dither_shared.files import ITEMS_MAX, KEYS_MAX
from dither_shared.frozen import canonical_json, sha256
from dither_shared.registry import REGISTRY_BYTES_MAX, Registry
from dither_shared.terms import DeviceTerms, Terms
from tests.pinned.comparing import load
from tests.pinned.registries import write_values
from tests.support.examples import EXAMPLES
from tests.support.registries import registry, registry_text

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "shared" / "compiled.schema.json").read_text(encoding="utf-8"))
PINNED = load("compiled")
SAFE = 2**53
"""Integers below this are the same in every language's JSON."""
Document = dict[str, Any]


def text_of(asked: Registry) -> str:
    return canonical_json(document_of(asked)).decode()


def same(compiled: Registry, asked: Registry) -> bool:
    """Tell whether two registries are the same to a device, an aggregator and a person."""
    ones, others = compiled.metrics.values(), asked.metrics.values()
    return (
        compiled == asked
        and [metric.name for metric in ones] == [metric.name for metric in others]
        and [metric.plan.digest for metric in ones] == [metric.plan.digest for metric in others]
        and [metric.plan.memo_key for metric in ones] == [metric.plan.memo_key for metric in others]
        and [Terms.of(metric) for metric in ones] == [Terms.of(metric) for metric in others]
        and [metric.linked for metric in ones] == [metric.linked for metric in others]
        and DeviceTerms.of(compiled) == DeviceTerms.of(asked)
    )


def leaves(document: object) -> Iterator[object]:
    if isinstance(document, dict | list):
        for inner in document.values() if isinstance(document, dict) else document:
            yield from leaves(inner)
    else:
        yield document


def test_every_pinned_registry_is_the_same_compiled_and_by_its_schema(tmp_path: Path) -> None:
    validator = jsonschema_rs.Draft202012Validator(SCHEMA)
    metrics = load("metrics")["metrics"]
    assert len(metrics) > 70
    for pinned in metrics:
        write_values(pinned["registry"], tmp_path)
        asked = Registry.parse(pinned["registry"], "metrics.toml", tmp_path)
        document = document_of(asked)
        validator.validate(document)
        assert all(isinstance(leaf, str | int | None) for leaf in leaves(document)), pinned["name"]
        assert all(abs(leaf) < SAFE for leaf in leaves(document) if isinstance(leaf, int)), pinned["name"]
        compiled = read(canonical_json(document).decode(), "metrics.json")
        assert same(compiled, asked), pinned["name"]
        assert document_of(compiled) == document, pinned["name"]


@pytest.mark.parametrize("example", sorted(path.parent.name for path in EXAMPLES.glob("*/metrics.toml")))
def test_every_example_is_the_same_compiled(example: str, tmp_path: Path) -> None:
    asked = Registry.load(EXAMPLES / example / "metrics.toml")
    (tmp_path / "metrics.json").write_text(text_of(asked), encoding="utf-8")
    assert same(Registry.load(tmp_path / "metrics.json"), asked)


def test_a_compiled_registry_of_0_1_0_is_read_by_every_later_dither() -> None:
    asked = Registry.parse(PINNED["registry"])
    assert same(read(json.dumps(PINNED["compiled"]), "metrics.json"), asked)
    assert {metric.kind.name for metric in asked.metrics.values()} >= {"table", "words", "choices", "number"}
    jsonschema_rs.validate(SCHEMA, PINNED["compiled"])


def test_the_schema_refuses_an_integer_that_is_no_text() -> None:
    document = document_of(registry())
    document["metrics"][0]["plan"]["cells"]["parts"][0]["parameters"]["threshold"] = 2**63  # type: ignore[index]
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMA, document)


def test_equal_noise_is_one_object_so_that_its_charge_is_computed_once() -> None:
    text = registry_text() + registry_text().partition("[metric.dark]")[2].join(("\n[metric.night]", ""))
    compiled = read(text_of(Registry.parse(text)), "metrics.json")
    assert compiled.metrics["night"].cells is compiled.metrics["dark"].cells


@pytest.mark.parametrize("name", ["metrics.json", "registry"])
@pytest.mark.parametrize("before", ["", "\n", "\ufeff"])
def test_it_is_told_by_its_content_or_its_name(name: str, before: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(before + text_of(registry()), encoding="utf-8")
    assert Registry.load(tmp_path / name) == registry()


def test_another_layout_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(
        json.dumps(document_of(registry()), indent=2), encoding="utf-8", newline="\r\n"
    )
    assert Registry.load(tmp_path / "metrics.json") == registry()


def sealed(change: Callable[[Document], object]) -> str:
    """Return the text of a document that was changed, with the digest of what it is then."""
    document = document_of(registry())
    del document["digest"]
    change(document)
    return json.dumps({**document, "digest": sha256(document)})


WHOLE = text_of(registry())
COMPILE = "`dither metrics compile metrics.toml --out metrics.json` writes it again"
DAMAGED = "is not what was compiled, but damaged or changed: change metrics.toml; " + COMPILE
NESTED = "[" * 30_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WHOLE.replace('"quiet_days":0', '"quiet_days":1'), DAMAGED),
        (WHOLE.replace('"threshold":"1', '"threshold":"2'), DAMAGED),
        (WHOLE.replace('"device_epsilon":"40.0"', '"device_epsilon":"400.0"'), DAMAGED),
        (WHOLE.replace('"digest":"', '"digest":"0', 1), DAMAGED),
        (WHOLE.replace('"linkable":false', '"linkable":NaN'), DAMAGED),
        (WHOLE.replace(f'"digest":"{document_of(registry())["digest"]}",', ""), DAMAGED),
        (WHOLE[:-1], "must be a compiled registry, in JSON: "),
        (WHOLE[: len(WHOLE) // 2], COMPILE),
        ("", "must be a compiled registry, in JSON: "),
        (NESTED, "got one that is nested too deep: "),
        ("[]", f"must be a compiled registry, with a key {FORMAT}: {COMPILE}"),
        ('{"name": "app", "version": 1}', f"must be a compiled registry, with a key {FORMAT}: {COMPILE}"),
        (f'{{"{FORMAT}": {"9" * 5_000}}}', "must be a compiled registry, in JSON: "),
        (
            sealed(lambda document: document.update({FORMAT: 2})),
            "must be of version 1, got 2: compile it with this dither, or install the one that compiled it",
        ),
        (
            sealed(lambda document: document.pop("metrics")),
            f"cannot be used by this dither: KeyError('metrics'); {COMPILE}",
        ),
        (
            sealed(lambda document: document["metrics"][0]["plan"].update(kind="smell")),
            "cannot be used by this dither: ",
        ),
        (sealed(lambda document: document["metrics"].append(7)), "cannot be used by this dither: "),
        (
            sealed(lambda document: document["metrics"][0]["plan"]["cells"]["parts"][0].update(mechanism="none")),
            "cannot be used by this dither: ",
        ),
        (
            sealed(lambda document: document.update(device_epsilon="1.0")),
            "the metrics reserve more of a device than device_epsilon, 1.0, allows",
        ),
    ],
)
def test_one_that_is_not_whole_is_refused_with_the_next_step(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(text, encoding="utf-8")
    with pytest.raises(RegistryError) as refused:
        Registry.load(tmp_path / "metrics.json")
    assert str(refused.value).startswith(f"{tmp_path / 'metrics.json'}: ")
    assert said in str(refused.value)
    assert len(str(refused.value)) < 3_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" + "[],\n" * KEYS_MAX + "1]", f"there must be at most {KEYS_MAX:,} lists and objects"),
        ("[" + "1," * (ITEMS_MAX + 1) + "1]", f"there must be at most {ITEMS_MAX:,} items"),
        ('{"a": "' + "[" * REGISTRY_BYTES_MAX, f"it has more than {REGISTRY_BYTES_MAX:,} bytes"),
    ],
)
def test_too_much_of_anything_is_refused_before_it_is_parsed(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", None)
    (tmp_path / "metrics.json").write_text(text, encoding="utf-8")
    with pytest.raises(RegistryError, match=said):
        Registry.load(tmp_path / "metrics.json")


def test_brackets_and_commas_in_texts_are_no_items(tmp_path: Path) -> None:
    asked = registry(kind="text", candidates=tuple(f"{'[,' * 90}{number}" for number in range(3_000)))
    (tmp_path / "metrics.json").write_text(text_of(asked), encoding="utf-8")
    assert Registry.load(tmp_path / "metrics.json") == asked
