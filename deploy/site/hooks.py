"""MkDocs asks this for the site's files: the rooms' pages as they stand in the repository, and what these link to.

No page is copied. A page keeps its path, and a README.md is its folder's first page, so that links lead to the same
places in the repository and on the site.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ROOMS = {
    "Apps": ("client", "client/web", "client/examples"),
    "Shared": ("shared", "shared/dither_shared/words"),
    "Aggregator": ("aggregator", "aggregator/dither_aggregator/simulate/data"),
    "Operation": ("deploy",),
    "Tests": ("tests", "tests/vectors/files"),
}
OTHERS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LOGO = "aggregator/dither_aggregator/web/static/dither.svg"
REFERENCE = "reference.md"
LINKED = re.compile(r"(?:\]\(|src=\")(?!https?:|mailto:|#)([^)#\"\s]+)")


def pages() -> dict[str, list[str]]:
    """Return the paths of the pages of each section: a room's README first, then the others by name."""
    found = {"": ["README.md"], **{section: [] for section in ROOMS}, "Project": list(OTHERS)}
    for section, folders in ROOMS.items():
        for folder in folders:
            names = sorted(path.name for path in (ROOT / folder).glob("*.md"))
            found[section] += [f"{folder}/{name}" for name in sorted(names, key=lambda name: name != "README.md")]
    found["Apps"].append(REFERENCE)
    return found


def linked(pages: list[str]) -> set[str]:
    """Return the files that pages link to or show, which are no pages."""
    found = {LOGO}
    for page in pages:
        for target in LINKED.findall((ROOT / page).read_text(encoding="utf-8")):
            path = (ROOT / page).parent / target
            if path.is_file() and path.suffix != ".md":
                found.add(path.resolve().relative_to(ROOT).as_posix())
    return found


def version() -> str:
    """Return the version that the site is of."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def on_config(config: MkDocsConfig) -> None:
    """Put the version into the folder's name, and the sections into the navigation."""
    config.site_dir = str(Path(config.site_dir) / version())
    config.nav = [{section: paths} if section else paths[0] for section, paths in pages().items()]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and what they link to, each by its path in the repository."""
    ours = [path for paths in pages().values() for path in paths if path != REFERENCE]
    for path in (*ours, *sorted(linked(ours))):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """List the versions that lie beside each other, the newest first, and lead from the top to the newest."""
    top = Path(config.site_dir).parent
    found = sorted((path.parent.name for path in top.glob("*/index.html")), key=_numbers, reverse=True)
    versions = [{"version": name, "title": name, "aliases": []} for name in found]
    (top / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    leads = f'<meta http-equiv="refresh" content="0; url={found[0]}/">'
    (top / "index.html").write_text(f"<!doctype html><title>dither</title>{leads}", encoding="utf-8")


def _numbers(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]
