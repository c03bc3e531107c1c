"""Erasing in the Redis store: what its append-only file still holds of days that are merged.

The file holds every command since it was last rewritten. So Redis is asked to rewrite it when a day is merged in all
shards. They are on one node, in a Cluster too: `client.py` follows no redirection, so no store is made on several.

Any process may die between asking and hearing of the end, and so may Redis. So what was asked for stands in the store.
Redis numbers the rewrites of a run: those from this number on began after the merging, whoever asked for them.
"""

from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

from dither_aggregator.store.interface.erasing import Erasing
from dither_aggregator.store.packing import day_number, day_of
from dither_aggregator.store.records import StoreError, StoreUnavailable
from dither_aggregator.store.redis import store_scripts
from dither_aggregator.store.redis.epochs import RedisEpochs

Information = Mapping[str, object]
"""The facts that Redis tells about itself."""


class _Rewrite(NamedTuple):
    """A rewrite of the file that begins after all days up to one were merged."""

    merged: date
    run: str
    """A restart of Redis begins another, and numbers from the beginning."""
    number: int

    @classmethod
    def next_of(cls, information: Information, merged: date) -> "_Rewrite":
        return cls(merged, str(information["run_id"]), _begun(information) + 1)

    @classmethod
    def from_text(cls, text: bytes) -> "_Rewrite":
        day, run, number = text.decode().split(" ")
        return cls(day_of(int(day)), run, int(number))

    def to_text(self) -> str:
        return f"{day_number(self.merged)} {self.run} {self.number}"

    def succeeded(self, information: Information) -> bool:
        """Whether it has ended well, or a later one has. To be asked when none is in progress."""
        began = information["run_id"] == self.run and _begun(information) >= self.number
        return began and information["aof_last_bgrewrite_status"] == "ok"


def _begun(information: Information) -> int:
    """Return how many rewrites this run of Redis has begun."""
    return int(str(information["aof_rewrites"]))


class RedisErasing(RedisEpochs, Erasing):
    """The file of the one node."""

    _refused = ""

    def erased(self) -> date:
        """Return the latest epoch that is erased."""
        (day,) = self._run_global(store_scripts.GET, "erased")
        return day_of(int(day)) if day else date.min

    def erase(self) -> str:
        """Note that a rewrite has ended, or ask for one; a later call hears of its end."""
        merged = self.merged()
        if merged <= self.erased():
            return ""
        for shard in range(self.shards):
            self.forget_answers(shard)
        information = self._client.information()
        if information["aof_rewrite_in_progress"]:
            return ""
        if not information["aof_enabled"]:
            return self._note_erased(merged)
        (asked,) = self._run_global(store_scripts.GET, "erasing")
        rewrite = _Rewrite.from_text(asked) if asked else None
        if rewrite and rewrite.merged >= merged and rewrite.succeeded(information):
            return self._note_erased(rewrite.merged)
        self._run_global(store_scripts.SET, "erasing", _Rewrite.next_of(information, merged).to_text())
        return self._ask()

    def _note_erased(self, merged: date) -> str:
        self._run_global(store_scripts.SET, "erased", day_number(merged))
        return ""

    def _ask(self) -> str:
        """Ask for a rewrite; return why Redis refuses, when that is new."""
        refused = ""
        try:
            self._client.run("BGREWRITEAOF")
        except StoreUnavailable:
            raise
        except StoreError as error:
            if "already in progress" not in str(error):  # that one began after we looked: it is as good
                refused = str(error)
        new, self._refused = refused != self._refused, refused
        if not (refused and new):
            return ""
        return (
            f"the append-only file is not rewritten, and uploads of days that are over can still be told apart in it: "
            f"{refused}. Allow the command BGREWRITEAOF"
        )
