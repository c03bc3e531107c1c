"""The kinds of metrics, by name: one file each. Whoever needs to know what a kind asks for asks it."""

from typing import Any

from dither_shared.kinds.choice import Choice
from dither_shared.kinds.choices import Choices
from dither_shared.kinds.flag import Flag
from dither_shared.kinds.kind import Answer, Asked, Kind, Offer
from dither_shared.kinds.text import Text

__all__ = ["KINDS", "Answer", "Asked", "Choice", "Choices", "Flag", "Kind", "Offer", "Text"]

KINDS: dict[str, Kind[Any]] = {kind.name: kind for kind in (Flag(), Choice(), Choices(), Text())}
