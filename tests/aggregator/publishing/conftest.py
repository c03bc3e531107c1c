from datetime import date
from pathlib import Path

import pytest

from dither_aggregator.publishing.site import about, render, write
from tests.support.releases import ANSWERS, AUDIT, ISSUE, MONTHS, TODAY, URL, documents, published


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a site of four months, which no test changes."""
    before = about(published(values=("red", "green", "blue")), date(2026, 6, 3))
    facts = about(published(ISSUE, values=ANSWERS), TODAY, (), before, URL, AUDIT)
    top = tmp_path_factory.mktemp("published") / "site"
    write(top, render(facts, documents(MONTHS), AUDIT))
    return top
