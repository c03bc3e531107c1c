"""The wire's bytes are pinned in vectors/uploads.json, the spoiled ones named after their damage."""

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_shared import wire
from dither_shared.plan import Plan
from dither_shared.shapes import BadReport, Bits, Subsets, Symbols
from dither_shared.wire import encode_upload, new_upload_id, reading
from dither_shared.wire.reading import GroupRefused, Problem, inflate, parse_upload
from tests.support.registries import registry
from tests.support.soaking import scaled

VECTORS, *MORE_PLANS = (
    json.loads((Path(__file__).parents[1] / "vectors" / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("uploads", "plans", "answers")
)
MANY = tuple(f"v{number}" for number in range(40))
MORE = tuple(f"v{number}" for number in range(127))
ASKED = (
    registry(),
    registry(values=MANY, color='mechanism = "oue"'),
    registry(values=MANY[:15], epsilon="1"),  # a subset as bits
    registry(values=MORE, epsilon="4"),  # a subset by its members
    registry(values=MORE),  # a point
    registry(kind="text", epsilon="1", epsilon_permanent="4", color="candidates_expected = 3\nmechanism = 'rappor'"),
)
STORED = [Plan.from_document(vector["plan"]) for vectors in MORE_PLANS for vector in vectors]
PLANS = {
    (plan.metric, plan.digest): plan
    for plan in (*STORED, *(metric.plan for asked in ASKED for metric in asked.metrics.values()))
}
COLOR, DARK, MANY_COLORS = (
    ASKED[0].metrics["color"].plan,
    ASKED[0].metrics["dark"].plan,
    ASKED[1].metrics["color"].plan,
)
ID = "AAECAwQFBgcICQoLDA0ODw"


def find_plan(metric: str, digest: str) -> Plan:
    if (metric, digest) not in PLANS:
        raise GroupRefused("unknown-plan")
    return PLANS[metric, digest]


@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["name"])
def test_a_valid_upload_is_read_as_pinned(vector: dict[str, object]) -> None:
    upload = parse_upload(str(vector["body"]).encode(), find_plan)
    read = [[group.plan.metric, group.cell, group.count, group.reports.hex()] for group in upload.groups]
    assert (upload.id, read, upload.refused) == (ID, vector["groups"], ())


@pytest.mark.parametrize("vector", VECTORS["spoiled"], ids=lambda vector: vector["name"])
def test_a_spoiled_upload_is_refused_whole(vector: dict[str, str]) -> None:
    with pytest.raises(Problem) as caught:
        parse_upload(vector["body"].encode("latin-1"), find_plan)
    assert caught.value.slug == vector["problem"]


@pytest.mark.parametrize("pair", ["[]", ('{"a":', "}")], ids=["lists", "objects"])
def test_deep_json_is_malformed(pair: tuple[str, str]) -> None:
    opening, closing = pair
    deepest = reading.VALUES_MAX - 3
    nested = opening * deepest + "1" + closing * deepest
    for body in (opening * deepest, f'{{"v": 1, "upload": "{ID}", "groups": {nested}}}'):
        with pytest.raises(Problem) as caught:
            parse_upload(body.encode(), find_plan)
        assert caught.value.slug == "malformed"


@pytest.mark.parametrize("mark", [",", "[", "{"])
def test_so_many_commas_and_brackets_are_read_and_no_more(mark: str) -> None:
    """Wherever they stand: nobody knows before the body is parsed."""
    group = {"metric": "dark", "plan": DARK.digest, "reports": [1], "more": ""}
    for more, reads in ((0, True), (1, False)):
        document = {"v": 1, "upload": ID, "groups": [group]}
        marks = sum(map(json.dumps(document).count, ",[{"))
        group["more"] = mark * (reading.VALUES_MAX - marks + more)
        body = json.dumps(document).encode()
        group["more"] = ""
        if reads:
            assert [refusal.reason for refusal in parse_upload(body, find_plan).refused] == ["malformed"]
        else:
            with pytest.raises(Problem, match="at most 16000 commas") as caught:
                parse_upload(body, find_plan)
            assert caught.value.slug == "too-large"


@pytest.mark.parametrize("vector", VECTORS["spoiled groups"], ids=lambda vector: vector["name"])
def test_a_spoiled_group_is_refused_and_its_neighbour_kept(vector: dict[str, object]) -> None:
    good = {"metric": "dark", "plan": DARK.digest, "reports": [1]}
    body = json.dumps({"v": 1, "upload": ID, "groups": [vector["group"], good]}).encode()
    upload = parse_upload(body, find_plan)
    assert [refusal.to_document() for refusal in upload.refused] == [
        {"group": 0, "reason": vector["reason"], "count": vector["count"]}
    ]
    assert [(group.plan.metric, group.reports) for group in upload.groups] == [("dark", b"\x01")]


@pytest.mark.parametrize(
    ("item", "metric"),
    [
        ({"metric": "dark", "plan": "0" * 16, "reports": [1]}, "dark"),
        ({"metric": "nothing", "plan": 3}, "nothing"),
        ({"metric": "d" * 64, "plan": "0" * 16, "reports": [1]}, ""),
        ({"metric": "Dark", "plan": "0" * 16, "reports": [1]}, ""),
        ({"metric": ["dark"], "plan": "0" * 16, "reports": [1]}, ""),
        ({"plan": "0" * 16, "reports": [1]}, ""),
        (["dark"], ""),
    ],
)
def test_a_refusal_has_the_name_that_the_group_gives_if_it_is_one(item: object, metric: str) -> None:
    body = json.dumps({"v": 1, "upload": ID, "groups": [item]}).encode()
    assert [refusal.metric for refusal in parse_upload(body, find_plan).refused] == [metric]


def test_what_the_device_writes_the_aggregator_reads() -> None:
    bits = (1 << 40) | 1
    groups = [
        ("dark", DARK.digest, [DARK.mechanism.shape.to_wire(1)]),
        ("color", MANY_COLORS.digest, [MANY_COLORS.mechanism.shape.to_wire(bits)]),
    ]
    body = encode_upload(ID, groups)
    assert len(body) == 512
    upload = parse_upload(body, find_plan)
    assert [(group.plan.metric, group.reports) for group in upload.groups] == [
        ("color", bits.to_bytes(6, "little")),
        ("dark", b"\x01"),
    ]


def test_uploads_are_padded_to_powers_of_two() -> None:
    sizes = {len(encode_upload(ID, [("dark", DARK.digest, [1] * count)])) for count in range(1, 1800, 50)}
    assert sizes == {512, 1024, 2048, 4096, 8192, 16384}


@pytest.mark.parametrize("cells", [(None, None), (0, 65_535)])
def test_a_size_does_not_depend_on_how_long_symbols_and_cells_are(cells: tuple[int | None, int | None]) -> None:
    """Around every power of two that so many groups reach: a symbol has one digit to seven, and a cell one to five."""
    for groups in range(1, 50):
        names = [f"metric_{number:02}" for number in range(groups)]
        short, long = (
            len(encode_upload(ID, [(name, "0" * 16, [symbol], cell) for name in names]))
            for symbol, cell in zip((0, 2_097_151), cells, strict=True)
        )
        assert short == long


def test_upload_ids_are_128_bits_and_all_are_accepted() -> None:
    for number in (0, 1, 2**128 - 1, 0x0123456789ABCDEF0123456789ABCDEF):
        upload_id = new_upload_id(lambda bits, n=number: n)  # type: ignore[misc]
        assert base64.urlsafe_b64decode(upload_id + "==") == number.to_bytes(16, "big")
        body = encode_upload(upload_id, [("dark", DARK.digest, [0])])
        assert parse_upload(body, find_plan).id == upload_id


def test_the_limits_are_exact() -> None:
    group = {"metric": "dark", "plan": DARK.digest, "reports": [1] * 40}

    def parse(groups: Sequence[object]) -> reading.Upload:
        return parse_upload(json.dumps({"v": 1, "upload": ID, "groups": groups}).encode(), find_plan)

    assert len(parse([group] * 50).groups) == 50
    with pytest.raises(Problem, match="1 to 50 groups"):
        parse([group] * 51)
    with pytest.raises(Problem, match="at most 2000 reports"):
        parse([group] * 49 + [{**group, "reports": [1] * 41}])


class TestInflate:
    def test_one_member_is_inflated(self) -> None:
        assert inflate(gzip.compress(b"{}")) == b"{}"

    @pytest.mark.parametrize("size", [wire.INFLATED_BYTES_MAX + 1, scaled(5_000_000, 50_000_000)])
    def test_a_bomb_is_refused_without_inflating_it(self, size: int) -> None:
        with pytest.raises(Problem) as caught:
            inflate(gzip.compress(bytes(size)))
        assert caught.value.slug == "too-large"

    def test_the_largest_body_is_taken(self) -> None:
        assert len(inflate(gzip.compress(bytes(wire.INFLATED_BYTES_MAX)))) == wire.INFLATED_BYTES_MAX

    @pytest.mark.parametrize(
        "body", [b"", b"{}", gzip.compress(b"{}", mtime=0)[:-1], gzip.compress(b"{}", mtime=0) * 2, b"\x1f\x8b"]
    )
    def test_anything_else_is_malformed(self, body: bytes) -> None:
        with pytest.raises(Problem) as caught:
            inflate(body)
        assert caught.value.slug == "malformed"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=scaled(40, 300), deadline=None, derandomize=True)
@given(json_values, st.sampled_from(["metric", "plan", "reports"]))
def test_a_garbage_field_only_ever_refuses_its_group(value: object, field: str) -> None:
    group = {"metric": "color", "plan": MANY_COLORS.digest, "reports": ["AAAAAAAA"], field: value}
    body = json.dumps({"v": 1, "upload": ID, "groups": [group]}).encode()
    upload = parse_upload(body, find_plan)
    assert len(upload.groups) + len(upload.refused) == 1


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 100), st.data())
def test_every_bit_string_has_exactly_one_form(size: int, data: st.DataObject) -> None:
    shape = Bits(size)
    report = data.draw(st.integers(0, 2**size - 1))
    text = shape.to_wire(report)
    assert shape.from_wire(text) == report
    spoiled = text[:-1] + data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
    try:
        assert shape.to_wire(shape.from_wire(spoiled)) == spoiled
    except BadReport:
        assert spoiled != text


@pytest.mark.parametrize(("size", "width"), [(2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4), (2**33, 8)])
def test_symbols_are_packed_in_whole_machine_words(size: int, width: int) -> None:
    assert Symbols(size).width == width
    assert Symbols(size).pack([0, size - 1]) == bytes(width) + (size - 1).to_bytes(width, "little")


@pytest.mark.parametrize(("size", "weight"), [(5, 2), (16, 4), (40, 5), (128, 2), (300, 3), (600, 2), (70_000, 2)])
def test_a_subset_has_exactly_one_form_and_the_shorter_one(size: int, weight: int) -> None:
    shape = Subsets(size, weight)
    assert shape.bits == min(size, weight * 8 * Symbols(size).width)
    assert shape.width == (shape.bits + 7) // 8
    members = [*range(weight - 1), size - 1]
    report = shape.of(members[::-1])
    assert shape.members(report) == members
    assert shape.from_wire(shape.to_wire(report)) == report
    assert len(shape.pack([report, report])) == 2 * shape.width


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from([Subsets(40, 5), Subsets(128, 2), Subsets(600, 3)]), st.data())
def test_only_subsets_of_the_right_weight_are_read(shape: Subsets, data: st.DataObject) -> None:
    packed = data.draw(st.binary(min_size=shape.width, max_size=shape.width))
    text = base64.urlsafe_b64encode(packed).rstrip(b"=").decode()
    try:
        members = shape.members(shape.from_wire(text))
    except BadReport:
        return
    assert members == sorted(set(members))
    assert len(members) == shape.weight
    assert members[-1] < shape.size
    assert shape.pack([shape.of(members)]) == packed
