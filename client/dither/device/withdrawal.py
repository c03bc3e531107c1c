"""Withdrawal: a person takes back what waits, and what the device knows. Charges stay.

For a file alone, without a registry, so that it can be done from outside the app.
"""

from dither.device.file import DeviceFile
from dither.device.reached import begin_silence


def drop(file: DeviceFile, reason: str, metric: str | None = None) -> None:
    """Drop what waits of a metric, or everything, and count it; within a transaction.

    A built upload that holds the metric goes with all that is in it: its bytes are frozen. Its reservations are free
    again. A hidden metric's period stays over: opening it again would tell that it was not answered yet.
    """
    dropped = drop_slots(file, metric)
    sql = "SELECT DISTINCT upload FROM report WHERE metric = COALESCE(?, metric)"
    for (upload_id,) in file.execute(sql, metric).fetchall():
        dropped += drop_upload(file, upload_id)
    forget_unused_classes(file)
    if dropped:
        file.count(reason, dropped)


def drop_slots(file: DeviceFile, metric: str | None = None, plan: str | None = None) -> int:
    """Forget what waits in slots, of a metric or of its plan alone; return how many there were.

    The log is to be erased: until then it shows which of a hidden metric's slots were answered.
    """
    sql = "DELETE FROM slot WHERE metric = COALESCE(?, metric) AND plan = COALESCE(?, plan)"
    dropped = file.execute(sql, metric, plan).rowcount
    if dropped:
        file.set("replaced", 1)
    return dropped


def drop_upload(file: DeviceFile, upload_id: str) -> int:
    """Forget an upload; return how many reports it held."""
    file.execute("DELETE FROM upload WHERE id = ?", upload_id)
    return file.execute("DELETE FROM report WHERE upload = ?", upload_id).rowcount


def forget_unused_classes(file: DeviceFile) -> None:
    """Forget the answers of memoized metrics that were not charged and wait no more."""
    file.execute(
        "DELETE FROM class WHERE NOT charged "
        "AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.metric = class.metric AND slot.class = class.class) "
        "AND NOT EXISTS (SELECT 1 FROM report WHERE report.metric = class.metric AND report.class = class.class)"
    )


def forget(file: DeviceFile) -> bool:
    """Erase the secret, memos, cohort and what waits, keep what was spent, and be silent for 30 days.

    All that a memo reserved counts as spent once a report of it was built: the rest would tell how many answers it had.
    Return False while another connection still reads what was: then `erase` must be tried again.
    """
    with file.transaction(durable=True):
        file.execute(
            "UPDATE metric SET spent = MAX(spent, reserved) WHERE name IN "
            "(SELECT metric FROM class WHERE charged UNION SELECT metric FROM report WHERE class IS NOT NULL)"
        )
        drop(file, "forgotten")
        file.execute("DELETE FROM class")
        file.set("secret", None)
        file.set("cohort", None)
        begin_silence(file)
        file.set("erasing", 1)
    return erase(file)


def is_untidy(file: DeviceFile) -> bool:
    """Tell whether the log holds what is no longer in the file: within a transaction."""
    return bool(file.get("erasing") or file.get("replaced"))


def erase(file: DeviceFile) -> bool:
    """Leave nothing in the log of what was forgotten or replaced; return False while another connection reads it."""
    if not file.checkpoint():
        return False
    with file.transaction():
        file.set("erasing", None)
        file.set("replaced", None)
    return True
