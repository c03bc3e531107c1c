"""Pages of numbers, read as a person reads them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.numeric import FORMS, number_site, two_weeks
from tests.support.sites import Site


@contextmanager
def two_weeks_of_numbers(directory: Path) -> Iterator[Site]:
    """Serve two weeks and a part of today, of each form; the numbers rose a week ago."""
    with number_site(directory, FORMS) as made:
        two_weeks(made, np.random.default_rng(7))
        yield made


def ask(one: Site, address: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    answer = one.client.get(address)
    assert answer.status_code == 200, answer.text
    document = answer.get_json()
    return document["meta"], document["rows"]


def words(html: str) -> str:
    """Return a page's text, its spaces plain."""
    text = unescape(re.sub("<[^>]*>", "", html)).replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"\s+", " ", text)


def facts(html: str) -> list[str]:
    return [words(each) for each in re.findall(r'<p class="facts">(.*?)</p>', html, re.DOTALL)]


def numbers(text: str) -> list[float]:
    """Return the numbers in a text."""
    plain = text.replace("\N{MINUS SIGN}", "-").replace(",", "")
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", plain)]


def share_of(text: str) -> float:
    (number,) = numbers(text)
    return number / 100
