"""Bloom bits are google/rappor's: pinned in vectors/rappor.json, and worked out a second time from the digests."""

import hashlib
import hmac
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dither_shared import hashing as bloom
from dither_shared.errors import InvalidParameter
from dither_shared.hashing import bloom_bits
from tests.support.aggregators import ENVIRONMENT

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "rappor.json").read_text(encoding="utf-8"))["bloom"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_bits_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    bits = bloom_bits(vector["value"], vector["cohort"], vector["k"], vector["h"], java=vector["java"])
    assert bits == tuple(vector["bits"])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_vectors_follow_from_their_digests(vector: dict[str, Any]) -> None:
    hashed = bytes(vector["cohort"] >> shift & 255 for shift in (24, 16, 8, 0)) + vector["value"].encode()
    assert hashlib.new("md5", hashed, usedforsecurity=False).hexdigest() == vector["md5"]
    digits = 4 if vector["java"] else 2
    numbers = [int(number, 16) for number in re.findall("." * digits, vector["md5"])]
    assert [number % vector["k"] for number in numbers[: vector["h"]]] == vector["bits"]


def test_the_documented_example_holds() -> None:
    assert bloom.__doc__
    digest = hashlib.md5(b"\0\0\0\0abc", usedforsecurity=False).hexdigest()
    assert re.sub("(..)(?!$)", r"\1 ", digest) in bloom.__doc__
    assert bloom_bits("abc", 0, 16, 2) == (6, 13)
    assert bloom_bits("abc", 0, 16, 2, java=True) == (13, 12)
    assert f"{1 << 6 | 1 << 13:016b}" in bloom.__doc__


def test_the_report_that_google_rappor_tests_for_follows_from_the_bits() -> None:
    """Their test encodes "abc" with the secret "secret", k 16, h 2, f 1/2, p 1/2, q 3/4 and draws of 0, .6, 0, ..."""
    pattern = sum(1 << bit for bit in bloom_bits("abc", 0, 16, 2))
    noise = hmac.digest(b"secret", pattern.to_bytes(4, "big"), "sha256")
    report = 0
    for bit in range(16):
        replaced = noise[bit] >> 1 < 64
        memo = noise[bit] & 1 if replaced else pattern >> bit & 1
        draw = (0, 0.6, 0)[bit % 3]
        report |= int(draw < (0.75 if memo else 0.5)) << bit
    assert report == 64493


def test_each_client_has_its_own_limits() -> None:
    assert len(bloom_bits("a", 0, 256, 16)) == 16
    assert len(bloom_bits("a", 0, 4096, 8, java=True)) == 8
    assert bloom_bits("a", 2**32 - 1, 1, 1) == (0,)
    for k, h, java, message in [
        (0, 1, False, "k must be from 1 to 256 for the Python and C"),
        (257, 1, False, "k must be from 1 to 256 for the Python and C"),
        (8, 0, False, "h must be from 1 to 16 for the Python and C"),
        (8, 17, False, "h must be from 1 to 16 for the Python and C"),
        (4097, 1, True, "k must be from 1 to 4096 for the Java hash, got 4097"),
        (8, 9, True, "h must be from 1 to 8 for the Java hash, got 9"),
    ]:
        with pytest.raises(InvalidParameter, match=re.escape(message)):
            bloom_bits("a", 0, k, h, java=java)
    for cohort in (-1, 2**32):
        with pytest.raises(InvalidParameter, match=f"a cohort must be from 0 to 4294967295, got {cohort}"):
            bloom_bits("a", cohort, 8, 1)


def test_text_that_utf_8_cannot_hold_is_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidParameter, match="half of a surrogate pair") as refusal:
        bloom_bits("secret\ud800", 0, 8, 1)
    assert "secret" not in str(refusal.value)


def test_it_needs_the_standard_library_only() -> None:
    code = "import sys, dither_shared.hashing; print(not {'numpy', 'requests'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout == "True\n"
