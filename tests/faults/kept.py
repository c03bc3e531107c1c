"""Two devices' files tell nothing of their answers but what is said here, row by row.

These may differ between two devices that differ in their answers and in their noise alone:

- where there is a secret and a cohort, what they are; each upload's id;
- each report's symbol, in its slot or in its upload, of the same length; and which cell is told with it;
- whether the slot of a metric whose presence is hidden is `replaceable`, until its period has closed;
- of a memoized metric whose answers differ, the classes, what was charged for them, and which reports charge one. That
  is by design, and client/device.md says so. The number of classes is the same if all answers are; of a text, whose
  class depends on the cohort, only if there were no answers at all.

All else is the same: every other row and column, each time and counter, and the uploads' lengths.
"""

import json
from collections.abc import Collection
from typing import Any

from dither.device.file import DeviceFile

Row = dict[str, Any]
TABLES = {
    "state": "key", "agreement": "metric", "metric": "name", "used": "metric, first", "class": "metric, place",
    "schedule": "metric, day", "retired": "metric", "slot": "metric", "upload": "place", "report": "upload, metric",
    "left_on": "metric", "counter": "name", "used_days": "only",
}  # fmt: skip
"""Every table, and the order of its rows."""
_OWN = {"secret", "cohort"}
"""The part of the state that each device draws for itself."""
_PAID = {"charge", "class"}


def kept(file: DeviceFile) -> dict[str, list[Row]]:
    """Return all rows of a file, by table."""
    with file.peek():
        names = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert names == TABLES.keys(), f"the tables are {sorted(names)}"
        return {table: _rows(file, table) for table in TABLES}


def _rows(file: DeviceFile, table: str) -> list[Row]:
    found = file.execute(f"SELECT * FROM {table} ORDER BY {TABLES[table]}")
    rows = found.fetchall()
    columns = [column for column, *_ in found.description] if rows else []
    return [dict(zip(columns, row, strict=True)) for row in rows]


def told(rows: dict[str, list[Row]], today: int, unlike: Collection[str], texts: Collection[str]) -> dict[str, Any]:
    """Return what a file's rows tell that must not depend on answers.

    `texts` are the metrics whose class depends on the cohort, and `unlike` the memoized ones whose answers differ
    between the two devices, or, of a text, may be of more classes on one of them.
    """
    places = {upload["id"]: place for place, upload in enumerate(rows["upload"])}
    return {
        "state": [{**row, "value": "its own"} if row["key"] in _OWN else row for row in rows["state"]],
        "agreement": rows["agreement"],
        "metric": [_without(row, {"spent"} if row["name"] in unlike else ()) for row in rows["metric"]],
        "class": [
            _without(row, {"class"} if row["metric"] in texts else ())
            for row in rows["class"]
            if row["metric"] not in unlike
        ],
        "used": rows["used"],
        "schedule": rows["schedule"],
        "retired": rows["retired"],
        "left_on": rows["left_on"],
        "slot": [_slot(row, today, unlike) for row in rows["slot"]],
        "upload": [_upload(row) for row in rows["upload"]],
        "report": sorted(
            (places[row["upload"]], row["metric"], *([] if row["metric"] in unlike else [row["charge"]]))
            for row in rows["report"]
        ),
        "counter": rows["counter"],
    }


def _without(row: Row, columns: Collection[str]) -> Row:
    return {column: value for column, value in row.items() if column not in columns}


def _slot(row: Row, today: int, unlike: Collection[str]) -> Row:
    still_open = row["leaves"] > today  # of a metric whose presence is public: never
    shown = _without(row, {*(_PAID if row["metric"] in unlike else ()), *(["replaceable"] if still_open else ())})
    if "class" in shown:
        shown["class"] = shown["class"] is not None
    return {**shown, "report": len(row["report"]), "cell": row["cell"] is not None}


def _upload(row: Row) -> Row:
    body = json.loads(row["body"])
    assert body["upload"] == row["id"]
    groups = [
        {**group, "reports": [len(json.dumps(report)) for report in group["reports"]], "cell": "cell" in group}
        for group in body["groups"]
    ]
    return {**row, "id": len(row["id"]), "body": (len(row["body"]), body.keys(), groups)}
