"""From an answer to the value of a cell's mechanism (shared/reports.md, "The place of an answer" and "The value")."""

from bisect import bisect_right
from fractions import Fraction
from typing import Any

from tests.second.coins import Coins
from tests.second.hashes import bloom_bits, bucket, is_seen, normal, word, word_bucket
from tests.second.plans import Document, integers_of, part_of
from tests.second.randomizers import Value

OTHER, NONE = "other", "none"
SCALE = 2**64
NOTHING = object()
"""The answer of a device with nothing to report."""


def value_of(plan: Document, cell: int, answer: object, coins: Coins, drawn: int = 0) -> Value:
    """Return the value of an answer in a cell. `drawn` are the 64 bits of a device with a threshold."""
    domain, part = plan["domain"], part_of(plan, cell)
    integers = integers_of(part)
    match domain["domain"]:
        case "values":
            return _listed(plan, integers, answer)
        case "buckets":
            place = _bucket(domain, answer)
            return None if part["mechanism"] == "window" and place > len(domain["edges"]) else place
        case "range":
            below, rest = divmod(_part(domain, answer, *domain["edges"]) * (integers["d"] - 1), SCALE)
            return below + coins.coin(rest)
        case "thresholds":
            return _above(domain, answer, cell, drawn)
        case "words":
            text = _text(domain, answer)
            return bloom_bits(_untext(answer) if text is None else text, cell, integers["k"], integers["h"])
        case "hashed":
            text = _text(domain, answer)
            typed = _untext(answer).encode() if text is None else b"text:" + text.encode()
            return bucket(typed, domain["salt"], cell, domain["buckets"])
        case "coded":
            text = _text(domain, answer)
            untyped = b"\xff" if answer is NOTHING else b"\xfe"
            typed = untyped if text is None else text.encode()
            return word_bucket(typed, cell, domain["salt"], domain["levels"], domain.get("alphabet", ""))
        case "columns":
            return _table(domain, cell, answer, coins)
    raise AssertionError(domain)


def _untext(answer: object) -> str:
    return NONE if answer is NOTHING else OTHER


def _listed(plan: Document, integers: dict[str, int], answer: Any) -> Value:
    values: list[str] = plan["domain"]["values"]
    if plan["kind"] != "choices":
        word = ("yes" if answer is True else "no") if plan["kind"] == "flag" else answer
        return values.index(NONE) if answer is NOTHING else _index(values, word)
    several = answer if isinstance(answer, list) else [answer]
    held = {values.index(NONE) if one is NOTHING else _index(values, one) for one in several}
    return frozenset(sorted(held)[: integers["ticks"]])


def _index(values: list[str], answer: object) -> int:
    listed = isinstance(answer, str) and normal(answer) in values
    return values.index(normal(str(answer)) if listed else OTHER)


def _steps(domain: Document, answer: object) -> Fraction | float | None:
    """Return a number in steps; None of what is none."""
    if isinstance(answer, bool) or not isinstance(answer, int | float | Fraction) or answer != answer:
        return None
    if abs(answer) == float("inf"):
        return float(answer)
    return Fraction(answer) * Fraction(10 ** domain["decimals"])


def _bucket(domain: Document, answer: object) -> int:
    number = _steps(domain, answer)
    if number is None:
        return len(domain["edges"]) + (2 if answer is NOTHING else 1)
    return bisect_right(domain["edges"], number)


def _part(domain: Document, answer: object, low: int, high: int) -> int:
    number = _steps(domain, answer)
    cut = low if number is None else min(max(number, low), high)
    return int((Fraction(cut) - low) * SCALE // (high - low))


def _above(domain: Document, answer: object, cell: int, drawn: int) -> int:
    edges, number = domain["edges"], _steps(domain, answer)
    step = 0 if number is None else min(max(bisect_right(edges, number) - 1, 0), len(edges) - 2)
    return int(drawn < _part(domain, answer, *edges[step : step + 2])) if step == cell else int(step > cell)


def _text(domain: Document, answer: object) -> str | None:
    if not isinstance(answer, str) or len(answer) > 4 * domain["characters_max"]:
        return None
    text = answer.encode("utf-8", "replace").decode()
    text = word(text, domain["casefold"]) if domain["domain"] == "coded" else normal(text)
    return text if len(text) <= domain["characters_max"] and is_seen(text) else None


def _table(domain: Document, cell: int, answer: Any, coins: Coins) -> int:
    question = domain["questions"][cell % len(domain["questions"])]
    place, cells = 0, 1
    for column in question:
        symbols, own = _symbols(domain["domains"][column]), domain["domains"][column]
        given = None if answer is NOTHING else answer.get(domain["names"][column])
        place = place * symbols + (_symbol(own, given, coins) if given is not None else symbols - 1)
        cells *= symbols
    return cells if answer is NOTHING else place


def _symbols(column: Document) -> int:
    return {"values": len(column.get("values", ())), "range": 3}.get(column["domain"], len(column.get("edges", ())) + 2)


def _symbol(column: Document, answer: object, coins: Coins) -> int:
    if column["domain"] == "values":
        return _index(column["values"], answer)
    if column["domain"] == "buckets":
        return _bucket(column, answer)
    if _steps(column, answer) is None:
        return 2
    part = _part(column, answer, *column["edges"])
    return int(coins.coin(part))
