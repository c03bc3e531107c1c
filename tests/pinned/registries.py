"""The registries of the pins: one metric each, written short, and the files of values that they name."""

import re
from collections.abc import Iterator
from pathlib import Path

HEAD = """[registry]
app = "pinned"
device_epsilon = 1000.0
quiet_days = 0
"""
COMMON = {
    "rev": "1",
    "question": '"What?"',
    "presence": '"public"',
    "period": '"1d"',
    "owners": '["team@example.org"]',
    "sensitivity": '"low"',
    "expires": "2027-02-28",
}


def registry_of(*metrics: str, head: str = HEAD) -> str:
    """Return the registry of metrics, each given by its keys; those that all need are added where they lack."""
    return "\n".join([head, *map(_metric, metrics)])


def _metric(text: str) -> str:
    keys = dict(line.partition(" = ")[::2] for line in text.strip().splitlines())
    name = keys.pop("name", "asked")
    if keys.get("memoize") != "true" and "reports" in keys:
        keys.setdefault("schedule", '"early"')
    written = {key: value for key, value in {**keys, **COMMON, **keys}.items() if value}
    return f"[metric.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in written.items())


def listed(d: int) -> str:
    """Return TOML's list of d values."""
    return "[" + ", ".join(f'"v{number}"' for number in range(d)) + "]"


def write_values(text: str, directory: Path) -> None:
    """Write the files that a registry names: `300.txt` has 300 values."""
    for size in _sizes(text):
        (directory / f"{size}.txt").write_text("".join(f"v{number}\n" for number in range(size)), encoding="utf-8")


def _sizes(text: str) -> Iterator[int]:
    return map(int, re.findall(r'"(\d+)\.txt"', text))
