"""The second implementation says what the vectors say; spoiled in one place, it does not."""

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.second import answers, hashes, plans, randomizers, shapes, uploads
from tests.second.answers import NOTHING, value_of
from tests.second.coins import Coins
from tests.second.plans import Document, cells_of, digest, memo_key
from tests.second.uploads import Group, Refused, read, write
from tests.second.vectors import PLANS, load

PLAN_VECTORS: list[Document] = [*load("plans"), *load("answers")]
ANSWERS, UPLOADS, BLOOM = load("answers"), load("uploads"), load("rappor")["bloom"]
MIDDLE = Coins(lambda bits: 1 << bits - 1 if bits else 0)
DARK = {"metric": "dark", "plan": "1650ccd588aabc39", "reports": [1]}
ID = "AAECAwQFBgcICQoLDA0ODw"


def by_name(vector: Document) -> str:
    return str(vector["name"])


MODULES = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_it_knows_only_the_standard_library(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.startswith("tests.second") or name.partition(".")[0] in sys.stdlib_module_names, name


# Plans.


@pytest.mark.parametrize("vector", PLAN_VECTORS, ids=by_name)
def test_a_plan_has_its_digest(vector: Document) -> None:
    assert (digest(vector["plan"]), memo_key(vector["plan"])) == (vector["digest"], vector["memo_key"])


def with_the_name(plan: Document) -> str:
    return plans.sha256({**plan, "domain": plans.sha256(plan["domain"])})[:16]


def with_the_domain(plan: Document) -> str:
    return plans.sha256({name: plan[name] for name in ("cells", "domain", "kind", "once_a_day", "presence", "rev")})[
        :16
    ]


def of_its_end(plan: Document) -> str:
    means = {name: plan[name] for name in ("cells", "kind", "once_a_day", "presence", "rev")}
    return plans.sha256({**means, "domain": plans.sha256(plan["domain"])})[-16:]


@pytest.mark.parametrize("other", [with_the_name, with_the_domain, of_its_end])
def test_another_rule_of_digests_is_seen_in_every_vector(other: Callable[[Document], str]) -> None:
    assert all(other(vector["plan"]) != vector["digest"] for vector in PLAN_VECTORS)


# Answers.


def wrong_values(vector: Document) -> list[tuple[object, object]]:
    """Return the answers of a vector that have other values here."""
    wrong: list[tuple[object, object]] = []
    for asked in vector["answers"]:
        answer = NOTHING if asked.get("nothing") else asked["answer"]
        values = [value_of(vector["plan"], cell, answer, MIDDLE, 1 << 63) for cell in vector["cells"]]
        came = [sorted(value) if isinstance(value, frozenset) else value for value in values]
        wrong += [(answer, came)] * (came != asked["values"])
    return wrong


@pytest.mark.parametrize("vector", ANSWERS, ids=by_name)
def test_answers_have_their_values(vector: Document) -> None:
    assert cells_of(vector["plan"]) > max(vector["cells"])
    assert wrong_values(vector) == []


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        (answers, "bucket", lambda typed, salt, row, buckets: hashes.bucket(typed, salt, 0, buckets)),
        (answers, "bloom_bits", lambda text, cohort, k, h: hashes.bloom_bits(text, cohort ^ 1, k, h)),
        (answers, "normal", lambda text: text),
        (answers, "word", lambda text, casefold: text),
        (answers, "is_seen", lambda text: True),
        (hashes, "NEWER", frozenset({0x301})),
        (
            answers,
            "word_bucket",
            lambda typed, cell, salt, levels, _: hashes.word_bucket(typed, cell, salt, [9] * len(levels), ""),
        ),
        (answers, "bisect_right", lambda edges, number: sum(edge < number for edge in edges)),
        (hashes, "END", 0),
        (hashes, "MASK", 2**63 - 1),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_spoiled_rule_of_values_is_seen(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, other: object
) -> None:
    monkeypatch.setattr(module, name, other)
    assert any(map(wrong_values, ANSWERS))


@pytest.mark.parametrize("vector", [one for one in BLOOM if not one["java"]], ids=by_name)
def test_bloom_bits_are_google_rappors(vector: Document) -> None:
    bits = hashes.bloom_bits(vector["value"], vector["cohort"], vector["k"], vector["h"])
    assert bits == frozenset(vector["bits"])


@pytest.mark.parametrize("space", load("points"), ids=lambda space: f"{space['order']}^{space['dimension']}")
def test_points_have_their_numbers(space: Document) -> None:
    order, dimension, prime = space["order"], space["dimension"], space["prime"]
    size = randomizers.count_points(order, dimension)
    for number, vector in space["points"]:
        assert randomizers.point_of(randomizers.place_of(number, size, prime), order, dimension) == vector
        assert randomizers.number_at(randomizers.rank_of(vector, order), size, prime) == number


# Uploads.


def packed(plan: Document, cell: int, report: Any) -> bytes:
    """Return a report as the vectors have it: a symbol's bytes, a subset's or bits' as on the wire."""
    part = plans.part_of(plan, cell)
    if isinstance(report, int):
        symbols = shapes.count_symbols(part)
        return report.to_bytes(1 if symbols <= 2**8 else 2 if symbols <= 2**16 else 4, "little")
    return shapes.pack(part, report)


@pytest.mark.parametrize("vector", UPLOADS["valid"], ids=by_name)
def test_a_valid_upload_is_read(vector: Document) -> None:
    upload = read(vector["body"].encode(), PLANS)
    came = [
        [
            group.plan["metric"],
            group.cell,
            len(group.reports),
            b"".join(packed(group.plan, group.cell, report) for report in group.reports).hex(),
        ]
        for group in upload.groups
    ]
    assert (upload.id, came, upload.refused) == (ID, vector["groups"], [])


def test_what_is_read_of_an_upload_is_written_as_it_was() -> None:
    for vector in UPLOADS["valid"]:
        upload = read(vector["body"].encode(), PLANS)
        again = read(write(upload.id, upload.groups), PLANS)
        assert (again.id, again.groups) == (upload.id, upload.groups)


@pytest.mark.parametrize("vector", UPLOADS["spoiled"], ids=by_name)
def test_a_spoiled_upload_is_refused(vector: Document) -> None:
    with pytest.raises(Refused, match=f"^{vector['problem']}$"):
        read(vector["body"].encode("latin-1"), PLANS)


def verdict(group: object) -> tuple[list[tuple[int, str, int]], int]:
    """Return what is refused of an upload of this group and a good one, and how many groups are taken."""
    body = json.dumps({"v": 1, "upload": ID, "groups": [group, DARK]}).encode()
    upload = read(body, PLANS)
    return upload.refused, len(upload.groups)


@pytest.mark.parametrize("vector", UPLOADS["spoiled groups"], ids=by_name)
def test_a_spoiled_group_is_refused_for_the_same_reason(vector: Document) -> None:
    assert verdict(vector["group"]) == ([(0, vector["reason"], vector["count"])], 1)


def test_a_reader_that_takes_spare_bits_or_any_order_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(part: Document, value: Any) -> Any:
        return frozenset() if isinstance(value, str) else value

    monkeypatch.setattr(uploads, "from_wire", careless)
    spoiled = UPLOADS["spoiled groups"]
    assert any(verdict(vector["group"])[0] != [(0, vector["reason"], vector["count"])] for vector in spoiled)


@pytest.mark.parametrize("reports", [1, 190, 191, 900])
def test_an_upload_is_padded_to_a_power_of_two(reports: int) -> None:
    body = write(ID, [Group(PLANS["dark", str(DARK["plan"])], 0, [1] * reports)])
    assert len(body) in (512, 2_048, 8_192)
    needed = len(body.rstrip(b" ")) + 6 * reports
    assert len(body) // 2 < needed <= len(body) or len(body) == 512
