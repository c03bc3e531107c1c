"""Hatchling asks this when it builds the wheel and the sdist of dither-aggregator."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class SameVersion(MetadataHookInterface):
    """Requires dither in the version of this package, beside all that `pyproject.toml` lists."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Say what is required. An unpacked sdist has it said in its PKG-INFO, and does not ask."""
        metadata["dependencies"] = [f"dither=={metadata['version']}", *self.config["dependencies"]]


class Brought(BuildHookInterface[Any]):
    """Brings parts of `client/` and `shared/`, which lie beside this folder in a clone and within an unpacked sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them to what is built; an editable installation of a clone has them from dither's."""
        if version == "editable":
            return
        root = Path(self.root)
        rooms = next(folder for folder in (root, root.parent) if (folder / "client").is_dir())
        for part in self.config["brings"]:
            room_less = part.partition("/")[2]
            build_data["force_include"][str(rooms / part)] = part if self.target_name == "sdist" else room_less
