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


class FromClient(BuildHookInterface[Any]):
    """Brings parts of `client/`, which lies beside this folder in a clone and within it in an unpacked sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them to what is built; an editable installation of a clone has them from dither's."""
        if version == "editable":
            return
        root = Path(self.root)
        client = next(folder / "client" for folder in (root, root.parent) if (folder / "client").is_dir())
        place = "client/" if self.target_name == "sdist" else ""
        build_data["force_include"] |= {str(client / part): place + part for part in self.config["brings"]}
