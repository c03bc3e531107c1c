"""Hostile uploads: every way we know to spoil one, from a seed.

`hostile_uploads` is what to send to a real aggregator, which must accept none of it.
"""

import base64
import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.shapes import Bits, ReportShape, Subsets, Symbols
from dither_shared.wire.reading import GroupRefused
from tests.fuzz import model

Document = dict[str, Any]
Headers = dict[str, str]

JSON = {"Content-Type": "application/json"}
GZIP = {**JSON, "Content-Encoding": "gzip"}


def hostile_uploads(seed: int, registry: Registry) -> Iterator[tuple[Headers, bytes]]:
    """Yield headers and bodies without end, none of which holds a group that may be accepted.

    Every kind of damage comes before any comes again. The headers are those that decide what the body is; a key and
    the length are left to whoever sends them.
    """
    rng, find_plan = random.Random(seed), finder([registry])
    plans = [metric.plan for metric in registry.metrics.values()]
    kinds = damages(plans)
    while True:
        for damage in rng.sample(kinds, len(kinds)):
            headers, body = damage(rng, draw_document(rng, plans))
            if not holds_reports(headers, body, find_plan):
                yield headers, body


def holds_reports(headers: Headers, body: bytes, find_plan: model.FindPlan) -> bool:
    """Say whether any group is to be accepted: not all random damage does harm."""
    try:
        return bool(model.read(model.read_body(headers, body), find_plan).groups)
    except model.Refused:
        return False


def finder(registries: list[Registry]) -> model.FindPlan:
    """Return what finds the plans of registries."""
    plans = {
        (metric.plan.metric, metric.plan.digest): metric.plan for one in registries for metric in one.metrics.values()
    }

    names = {name for name, _ in plans}

    def find_plan(metric: str, digest: str) -> Plan:
        if (metric, digest) not in plans:
            raise GroupRefused("unknown-plan" if metric in names else "unknown-metric")
        return plans[metric, digest]

    return find_plan


def draw_report(rng: random.Random, shape: ReportShape) -> int | str:
    """Return a report as it is on the wire, drawn from all of its shape."""
    if isinstance(shape, Symbols):
        return rng.randrange(shape.size)
    if isinstance(shape, Subsets):
        return shape.to_wire(shape.of(rng.sample(range(shape.size), shape.weight)))
    return shape.to_wire(rng.getrandbits(shape.size))


def draw_document(rng: random.Random, plans: list[Plan]) -> Document:
    """Return a valid upload of a few groups."""
    groups = [draw_group(rng, plan) for plan in (rng.choices(plans, k=rng.randint(1, 3)) if plans else [])]
    upload = base64.urlsafe_b64encode(rng.randbytes(16)).rstrip(b"=").decode()
    return {"v": 1, "upload": upload, "groups": groups}


def draw_group(rng: random.Random, plan: Plan) -> Document:
    """Return a few reports of one metric."""
    cell = rng.randrange(plan.cells.count) if plan.cells.several else 0
    shape = plan.cells.mechanism_of(cell).shape
    reports = [draw_report(rng, shape) for _ in range(rng.randint(1, 4))]
    group = {"metric": plan.metric, "plan": plan.digest, "reports": reports}
    return {**group, "cell": cell} if plan.cells.several else group


def encode(document: object) -> bytes:
    """Return a document as JSON."""
    return json.dumps(document).encode()


# Places in a document.

Place = tuple[str | int, ...]

HERE = "\x00here"
FRAGMENTS = (
    *("null", "true", "false", "-1", "-0", "0", "1", "128", "255", "256", "65536", "1.0", "1e0", "1E400", "-1e-400"),
    *("9" * 19, "9" * 20, "1" + "0" * 400, "9" * 4_300, "9" * 4_301, "-" + "9" * 5_000),
    *("1.5", "NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x1", "1_000", "'1'", "undefined", ""),
    *(
        '""',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\ud83d\\ude00"',
        '"A\\n"',
        '"\\u0041"',
        '"a"',
        '"="',
        '"AAAA"',
    ),
    *("[]", "[[]]", "{}", '{"a": 1}', '{"a": 1, "a": 1}', "[1, 2]", "[null]", "[" * 60 + "]" * 60),
    *('"' + "A" * 10_000 + '"', '"\u00c4\u00e4"', '"\U0001f600"', '"\u2028"', '"\ufeff"', '"\\x"', '"\t"'),
)
"""Fragments to stand where something else belongs; some are not JSON."""


def places(value: Any, place: Place = ()) -> list[Place]:
    """Return the places of a document: itself, its fields, its items, theirs."""
    below: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    return [place, *(found for key, item in below for found in places(item, (*place, key)))]


def put(document: Any, place: Place, value: Any) -> Any:
    """Return a document with another value in a place."""
    if not place:
        return value
    copy = document.copy()
    copy[place[0]] = put(document[place[0]], place[1:], value)
    return copy


def at(document: Any, place: Place) -> Any:
    """Return what is in a place."""
    return at(document[place[0]], place[1:]) if place else document


def put_fragment(document: Document, place: Place, fragment: str) -> bytes:
    """Return the body with a fragment of JSON, or of nothing, in a place."""
    return json.dumps(put(document, place, HERE)).replace(json.dumps(HERE), fragment).encode()


def all_groups(document: Document, change: Callable[[Document], object]) -> bytes:
    """Return the body with all groups changed, so that no neighbour is kept."""
    return encode({**document, "groups": [change(group) for group in document["groups"]]})


# Damage: each takes a valid document and returns headers and a body.

Damage = Callable[[random.Random, Document], tuple[Headers, bytes]]
_DAMAGES: list[Damage] = []


def damages(plans: list[Plan]) -> list[Damage]:
    """Return all ways to spoil an upload of reports under these plans."""
    return [*_DAMAGES, partial(reports_wrong_by_one, plans)]


def damage(spoil: Damage) -> Damage:
    """List a way to spoil an upload."""
    _DAMAGES.append(spoil)
    return spoil


@damage
def a_wrong_value_somewhere(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return JSON, put_fragment(document, rng.choice(places(document)), rng.choice(FRAGMENTS))


@damage
def a_wrong_value_in_every_group(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    field = rng.choice(["metric", "plan", "reports", "cell", "another"])
    body = json.dumps({**document, "groups": [{**group, field: HERE} for group in document["groups"]]})
    return JSON, body.replace(json.dumps(HERE), rng.choice(FRAGMENTS)).encode()


@damage
def a_wrong_report_in_every_group(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    groups = [put(group, ("reports", rng.randrange(len(group["reports"]))), HERE) for group in document["groups"]]
    body = json.dumps({**document, "groups": groups})
    return JSON, body.replace(json.dumps(HERE), rng.choice(FRAGMENTS)).encode()


@damage
def a_spoiled_report_in_every_group(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    def spoil(group: Document) -> Document:
        place = rng.randrange(len(group["reports"]))
        return put(group, ("reports", place), spoiled_report(rng, group["reports"][place]))  # type: ignore[no-any-return]

    return JSON, all_groups(document, spoil)


def spoiled_report(rng: random.Random, report: int | str) -> object:
    """Return something close to a report."""
    if isinstance(report, int):
        return rng.choice([report - 2**32, report + 2**32, report + 2**64, -report - 1, float(report), str(report)])
    place, odd = rng.randrange(len(report) + 1), rng.choice("+/= \n\r\t\x00!\u00c4\u0410\ud800\udc41")
    return rng.choice(
        [
            report[:-1],
            report + "A",
            report + "=" * (-len(report) % 4 or 4),
            report[:-1] + rng.choice(model.BASE64URL),
            report[:place] + odd + report[place + 1 :],
            report[:place] + odd + report[place:],
            report[:place] + odd * rng.randint(1, 4) + report[place:],
            report[:place] + (odd * 4 + report[place + 4 :])[: len(report) - place],
            report + rng.choice(["\n", ""]) + "A" * rng.randrange(5) + report,
            [report],
            len(report),
        ]
    )


def close_to_reports(shape: ReportShape) -> list[object]:
    """Return what is wrong by one: a value, a bit, a member too many or too few."""
    if isinstance(shape, Symbols):
        return [-1, shape.size, shape.size - 1, True, False, 0.0]
    if not isinstance(shape, Subsets):
        assert isinstance(shape, Bits)
        return [packed_text(1 << place, shape.width) for place in range(shape.size - 1, shape.width * 8)]
    last = shape.size - 1
    members = [*range(shape.weight - 1), last]
    sets = [members, members[:-1], members[1:], [*members, last - 1], [*members[:-1], last + 1], members[::-1]]
    if not shape.listed:
        return [packed_text(sum(1 << one for one in set(some)), shape.width) for some in sets]
    sets += [[0] * shape.weight, [last] * shape.weight, [members[0], *members[:-1]]]
    width = shape.width // shape.weight
    return [packed_text(sum(one << 8 * width * at for at, one in enumerate(some)), shape.width) for some in sets]


def packed_text(number: int, width: int) -> str:
    """Return the base64url of a number, as far as it fits."""
    packed = (number & (1 << 8 * width) - 1).to_bytes(width, "little")
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def reports_wrong_by_one(plans: list[Plan], rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    shapes = {plan.digest: plan.mechanism.shape for plan in plans}

    def spoil(group: Document) -> Document:
        return {**group, "reports": [*group["reports"], rng.choice(close_to_reports(shapes[group["plan"]]))]}

    return JSON, all_groups(document, spoil)


@damage
def reports_split_elsewhere(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    """The same characters in the same order, in texts of other lengths."""

    def spoil(group: Document) -> Document:
        texts = [str(report) for report in group["reports"]] * 2
        whole, end = rng.choice(["", "\n", "A", "\nA", "\nAA"]).join(texts), rng.randrange(1, 3)
        return {**group, "reports": [whole[:end], whole[end:]]}

    return JSON, all_groups(document, spoil)


@damage
def too_many_groups(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return JSON, encode({**document, "groups": [document["groups"][0]] * rng.choice([51, 52, 500])})


@damage
def too_many_reports(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    group = document["groups"][0]
    groups = [
        {**group, "reports": group["reports"][:1] * size} for size in rng.choice([(2_001,), (1, 2_000), (1_001,) * 2])
    ]
    return JSON, encode({**document, "groups": groups})


@damage
def no_groups(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return JSON, encode({**document, "groups": rng.choice([[], {}, None, [[]], [[], {}], document["groups"][0]])})


@damage
def no_reports(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return JSON, all_groups(document, lambda group: {**group, "reports": []})


@damage
def a_field_less(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    field = rng.choice(["v", "upload", "groups", "metric", "plan", "reports"])
    body = {name: value for name, value in document.items() if name != field}
    if field in document:
        return JSON, encode(body)
    return JSON, all_groups(document, lambda group: {name: value for name, value in group.items() if name != field})


@damage
def a_field_twice(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    objects = [place for place in places(document) if isinstance(at(document, place), dict)]
    place = rng.choice(objects)
    text = json.dumps(at(document, place))
    name, value = rng.choice(list(at(document, place).items()))
    escaped = "".join(f"\\u{ord(character):04x}" for character in name)
    again = f'"{rng.choice([name, escaped])}": {rng.choice([json.dumps(value), "null", "[]", "-1"])}'
    twice = rng.choice([f"{text[:-1]}, {again}}}", f"{{{again}, {text[1:]}"])
    return JSON, put_fragment(document, place, twice)


@damage
def a_spoiled_id(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    id_ = document["upload"]
    return JSON, encode({**document, "upload": rng.choice([spoiled_report(rng, id_), id_ + "\n"])})


@damage
def a_plan_of_nobody(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    def spoil(group: Document) -> Document:
        plan = group["plan"]
        close = [plan.upper(), plan[:-1], plan + "0", plan + "\n", plan[:-1] + "\u0663", plan[::-1]]
        return {**group, "plan": rng.choice([rng.randbytes(8).hex(), *close])}

    return JSON, all_groups(document, spoil)


@damage
def a_metric_of_nobody(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    name = rng.choice(
        ["nobody", "a" * 63, "a" * 64, "Color", "", "_", "color\n", "../color", "color\x00", "c\u043elor"]
    )
    return JSON, all_groups(document, lambda group: {**group, "metric": name})


@damage
def a_cell_that_is_none(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    cells: list[object] = [-1, 128, 255, 256, 2**64, True, False, 0.0, "0", None, [0], {}]
    cell = rng.choice(cells)
    return JSON, all_groups(document, lambda group: {**group, "cell": cell})


@damage
def deep_json(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
    depth = rng.choice([200_000 // len(opening), 10_000 // len(opening)])
    deep = opening * depth + "1" + closing * depth if rng.random() < 0.5 else opening * depth
    body = put_fragment(document, rng.choice(places(document)), deep)
    return GZIP, gzip.compress(body, 1, mtime=0)


@damage
def not_utf_8(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    body = encode(document)
    place = rng.randrange(len(body))
    spoiled = rng.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"])
    return JSON, body[:place] + spoiled + body[place:]


@damage
def another_encoding(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    text = json.dumps(document)
    name = rng.choice(
        ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-7", "cp037"]
    )
    return JSON, (("\ufeff" if name == "utf-7" else "") + text).encode(name)


@damage
def something_around_it(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    body = encode(document)
    thing = rng.choice(
        [body, b"\x00", b"\x0b", b"\x0c", b"\xc2\xa0", b",", b"]", b"}", b"//", b"/**/", b"\x1a", b"null"]
    )
    return JSON, rng.choice([body + thing, thing + body, body + b" " * 1_000 + thing])


@damage
def truncated(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    body = encode(document)
    return JSON, body[: rng.randrange(len(body))]


@damage
def bytes_changed(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return JSON, mutate(rng, encode(document))


_CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda rng, piece: rng.randbytes(len(piece)),
    lambda rng, piece: b"",
    lambda rng, piece: piece + rng.choice(b'"{}[],:\\0123456789eE+-._=/AQgwz \n\x00\xff').to_bytes(),
    lambda rng, piece: piece * 2,
    lambda rng, piece: piece[::-1],
    lambda rng, piece: bytes(byte ^ 1 << rng.randrange(8) for byte in piece),
    lambda rng, piece: rng.choice(FRAGMENTS).encode(),
)


def mutate(rng: random.Random, body: bytes) -> bytes:
    """Return a body with a few bytes changed, taken out, put in, doubled or moved."""
    spoiled = bytearray(body)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        start = rng.randrange(len(spoiled) + 1)
        end = min(len(spoiled), start + rng.choice([0, 1, 1, 2, 8, 64]))
        piece = bytes(spoiled[start:end])
        spoiled[start:end] = rng.choice(_CHANGES)(rng, piece)
    return bytes(spoiled)


@damage
def a_gzip_bomb(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return GZIP, bomb(rng.choice([2, 16, 128]))


@cache
def bomb(megabytes: int) -> bytes:
    """Return a gzip member of so many MiB of spaces."""
    stream = zlib.compressobj(9, wbits=31)
    first = stream.compress(b" " * 2**20) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(b" " * 2**20) + stream.flush(zlib.Z_FULL_FLUSH)
    return first + again * (megabytes - 1) + b"\x03\x00" + bytes(4) + struct.pack("<I", megabytes << 20 & 0xFFFFFFFF)


@damage
def spoiled_gzip(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    body = encode(document)
    packed = gzip.compress(body, mtime=0)
    return GZIP, rng.choice(
        [
            packed[: rng.randrange(len(packed))],
            packed[: -rng.randint(1, 8)],
            packed * 2,
            packed + b"\x00",
            packed + body,
            gzip.compress(packed, mtime=0),
            gzip.compress(body + body, mtime=0),
            packed[:-8] + bytes(8),
            packed[:-4] + struct.pack("<I", len(body) + 1),
            body,
            b"",
            zlib.compress(body),
            zlib.compress(body, wbits=-15),
            b"\x1f\x8b\x09" + packed[3:],
            packed[:3] + b"\xff" + packed[4:],
        ]
    )


@damage
def gzip_changed(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return GZIP, mutate(rng, gzip.compress(encode(document), mtime=0))


@damage
def gzip_in_secret(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return JSON, gzip.compress(encode(document), mtime=0)


@damage
def other_headers(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    kind = rng.choice(
        ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data", ""]
    )
    encoding = rng.choice(["br", "deflate", "gzip, gzip", "compress", "br, gzip", "zstd", "*"])
    body = encode(document)
    return rng.choice(
        [({"Content-Type": kind}, body), ({**JSON, "Content-Encoding": encoding}, gzip.compress(body, mtime=0))]
    )


@damage
def a_body_too_large(rng: random.Random, document: Document) -> tuple[Headers, bytes]:
    return JSON, encode(document).ljust(256 * 1024 + 1)
