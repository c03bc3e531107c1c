"""The registry of these tests, which a test may change."""

from datetime import timedelta

import pytest

from dither_shared.registry import Registry, utc_today
from tests.support.registries import registry_text

LIVES_DAYS = 180


@pytest.fixture
def dither_registry(request: pytest.FixtureRequest) -> Registry:
    """Return the registry of the tests here, with what `with_registry` changes."""
    changes = {"expires": utc_today() + timedelta(days=LIVES_DAYS), **getattr(request, "param", {})}
    presence = changes.pop("presence", "public")
    return Registry.parse(registry_text(**changes).replace('"public"', f'"{presence}"'))
