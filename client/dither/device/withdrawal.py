"""What a person takes back: what waits, and what the device knows. What was charged stays charged.

For a file alone, without a registry, so that it can be done from outside the app.
"""

import json

from dither.device.file import DeviceFile

FORGET_DAYS = 30


def drop(file: DeviceFile, reason: str, metric: str | None = None) -> None:
    """Drop what waits of a metric, or everything, and count it; within a transaction.

    A built upload that holds the metric goes with all that is in it: its bytes are frozen.
    """
    # Where presence is hidden, the period is over: opening it again would tell that it was not answered yet.
    file.execute(
        "UPDATE metric SET next_day = MAX(next_day, (SELECT leaves FROM slot WHERE slot.metric = metric.name)) "
        "WHERE name IN (SELECT metric FROM slot WHERE ? IS NULL OR metric = ?)",
        metric, metric,
    )  # fmt: skip
    dropped = file.execute("DELETE FROM slot WHERE ? IS NULL OR metric = ?", metric, metric).rowcount
    file.execute("DELETE FROM class WHERE NOT charged AND (? IS NULL OR metric = ?)", metric, metric)
    for place, reports, cost in file.execute("SELECT place, reports, cost FROM upload").fetchall():
        if metric is None or metric in json.loads(cost):
            file.execute("DELETE FROM upload WHERE place = ?", place)
            dropped += reports
    if dropped:
        file.count(reason, dropped)


def forget(file: DeviceFile) -> None:
    """Erase the secret, memos, cohort and what waits, keep what was spent, and be silent for 30 days.

    What the memos reserved counts as spent: what is left of it would tell how many answers they had.
    """
    with file.transaction(durable=True):
        drop(file, "forgotten")
        file.execute("UPDATE metric SET spent = MAX(spent, reserved) WHERE name IN (SELECT metric FROM class)")
        file.execute("DELETE FROM class")
        file.set("secret", None)
        file.set("cohort", None)
        file.set("forgotten_until", file.today() + FORGET_DAYS)
    file.checkpoint()
