"""Changes by operators, on the command line and over HTTP alike: each has an entry in the store's journal.

The entry is written before the change, so none is without; what cannot be done, and what changes nothing, has none. A
change that fails all the same, because the store does, has an entry too. Only the registry with which `dither serve`
starts has its entry afterwards, if it changed anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from dither_aggregator.health.status import log_expiries
from dither_aggregator.store import Store, StoredPlan, StoreError
from dither_aggregator.store.document_kinds import (
    COMMAND_LINE,
    FILE_NAME,
    Dashboard,
    DayMark,
    Key,
    asked_id,
    id_in,
    new_text,
)
from dither_aggregator.store.documents import Offered
from dither_aggregator.store.invariants import SetApart, set_apart
from dither_shared.domains import Columns
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Registry


@dataclass(frozen=True)
class Administration:
    """A store, in somebody's hands. Every method raises StoreError for what cannot be done."""

    store: Store
    actor: str = COMMAND_LINE
    """The id of an admin key, or COMMAND_LINE."""

    def load(self, registry: Registry | Offered) -> list[StoredPlan]:
        """Load a registry; return the plans that are new."""
        offered = Offered.of(registry)
        self.store.refresh()
        before = {stored.id: stored for stored in self.store.plans()}
        after = self.store.loading(offered)  # which raises where that cannot be
        if any(before.get(stored.id) != stored for stored in after):
            self._note("registry load", f"{offered.app}: {', '.join(offered.metrics)}")
            self.store.load(offered)
        log_expiries(self.store)
        return [stored for stored in self.store.plans() if stored.id not in before]

    def start_with(self, registry: Registry) -> None:
        """Load the registry with which a process starts: most starts change nothing, and have no entry."""
        before = self.store.plans()
        self.store.load(registry)
        if self.store.plans() != before:
            self._note("registry load", f"{registry.app}: {', '.join(registry.metrics)}")
        log_expiries(self.store)

    def retire(self, metric: str, rev: int, *, undo: bool = False) -> None:
        """Refuse the reports of a plan from now on, or take them again."""
        if any(stored.plan.rev == rev and stored.retired == undo for stored in self.store.plans(metric)):
            self._note("plan retire" if not undo else "plan take again", f"{metric} rev {rev}")
        self.store.retire(metric, rev, retired=not undo)

    def replay(self, ids: Iterable[str]) -> list[str]:
        """Put quarantined groups back into the log; return the ids of those that were there."""
        return self._settle("replay", ids)

    def drop(self, ids: Iterable[str]) -> list[str]:
        """Give quarantined groups up; return the ids of those that were there."""
        return self._settle("drop", ids)

    def _settle(self, action: str, ids: Iterable[str]) -> list[str]:
        asked = list(ids)
        waiting = {item.id: item for item in self.store.quarantined()}
        lost = sorted(id_ for id_ in asked if action == "replay" and id_ in waiting and waiting[id_].damaged)
        if lost:
            raise StoreError(
                f"{', '.join(lost)}: only damaged entries of the log are left, and no reports to count; "
                "`dither quarantine drop` gives them up"
            )
        there = [id_ for id_ in asked if id_ in waiting]
        if there:
            self._note(f"quarantine {action}", ", ".join(there))
        step = self.store.replay if action == "replay" else self.store.drop
        return [id_ for id_ in there if step(id_)]

    def set_apart(self) -> list[SetApart]:
        """Set damaged entries of the log apart; return what was done, a shard each."""
        self._note("quarantine aside", "damaged entries of the log")
        return [one for shard in range(self.store.shards) if (one := set_apart(self.store, shard))]

    def add_mark(self, day: date, text: str) -> tuple[DayMark, bool]:
        """Mark a day; return the mark, and whether it is new. Raises StoreError for a text that is no mark's."""
        mark = DayMark(day, text)
        if not mark.fault and mark not in self.store.documents(DayMark):
            self._note("mark add", f"{mark.day} {mark.text}")
        return mark, self.store.put(mark)

    def remove_marks(self, day: date, text: str | None) -> list[DayMark]:
        """Remove a mark, or all of a day; return those that were there."""
        asked = [mark for mark in self.store.documents(DayMark) if mark.day == day and text in (None, mark.text)]
        if asked:
            self._note("mark remove", f"{day} {text or ''}".rstrip())
        return [mark for mark in asked if self.store.remove(mark)]

    def show_beside(self, registry: Path) -> Dashboard | None:
        """Take up the dashboard beside a registry's file, after its plans; return it, None where there is none.

        Raises ConfigurationError for one that is wrong.
        """
        path = registry.with_name(FILE_NAME)
        if not path.is_file():
            return None
        dashboard = Dashboard.load(path)
        try:
            dashboard.check({each.plan.metric: each.plan for each in self.store.plans() if each.current})
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None
        self.show(dashboard)
        return dashboard

    def show(self, dashboard: Dashboard) -> bool:
        """Take up a dashboard in the place of the one before; return whether it says anything else."""
        before = next(iter(self.store.documents(Dashboard)), Dashboard())
        kept = dashboard.following(before, self._with_reports(), self._columns_with_reports())
        if kept == before:
            return False
        self._note("dashboard load", f"{len(kept.groups)} groups, {len(kept.questions)} questions")
        return self.store.put(kept)

    def _columns_with_reports(self) -> list[str]:
        """Return the columns of tables with reports: a question may name these alone."""
        known, found = self._with_reports(), list[str]()
        for each in self.store.plans():
            if each.plan.metric in known and isinstance(each.plan.domain, Columns):
                found += [*each.plan.domain.names, *each.plan.domain.public[:1]]
        return found

    def _with_reports(self) -> list[str]:
        plans = self.store.plans()
        return [each.plan.metric for each in plans if self.store.epochs(each.plan) or self.store.finals(each.plan)]

    def create_key(self, scope: str, label: str) -> tuple[Key, str]:
        """Make a key; return it with its text, which nobody can tell again."""
        text = new_text(scope)
        return self.register_key(scope, text, label), text

    def register_key(self, scope: str, text: str, label: str) -> Key:
        """Take over a key by its text."""
        self.store.keys.adding(scope, text, label, self.store.today())  # which raises where that cannot be
        self._note("key create", " ".join(filter(None, (id_in(text), scope, label))))
        return self.store.register_key(scope, text, label)

    def revoke_key(self, id_: str, *, wait: bool = False) -> Key:
        """Let nobody in with a key from now on; with `wait`, have its uploads come again later."""
        id_ = asked_id(id_)
        self.store.keys.revoking(id_, wait)  # which raises where that cannot be
        self._note("key revoke", f"{id_}, to wait" if wait else id_)
        return self.store.revoke_key(id_, wait=wait)

    def _note(self, action: str, what: str) -> None:
        self.store.note(self.actor, action, what)
