"""Steps that change plans: a registry loaded, a plan retired, and a contradiction refused."""

from collections.abc import Callable
from typing import Any, Self

import pytest

from dither_aggregator.store import Store, StoreError
from dither_shared.registry import Registry
from tests.faults.aggregator.editions import contradiction
from tests.faults.aggregator.places import FIRST_DAY
from tests.faults.aggregator.steps.processes import Known, Processes, View, step


class PlanSteps(Processes):
    """Load editions of the registry and retire plans, and keep what each version of the plans says."""

    @step
    def load(self, edition: int) -> None:
        """Load an edition of the registry."""
        self._load(self.any(), edition)

    @step
    def load_late(self, edition: int, change: Callable[[Self], None]) -> None:
        """Let a process load an edition, and another change the plans just before it stores them."""
        store = self.any()
        save = store._save

        def save_late(*args: Any) -> bool:
            store._save = save  # type: ignore[method-assign]
            change(self)
            return save(*args)

        store._save = save_late  # type: ignore[assignment,method-assign]
        self._load(store, edition)

    def _load(self, store: Store, edition: int) -> None:
        registry = self.editions[edition]
        self._change_plans(lambda: store.load(registry), lambda: self._view() | self._loaded(registry))

    def _view(self) -> View:
        return self._views[max(self._views)]

    def _loaded(self, registry: Registry) -> View:
        loaded = {}
        for metric in registry.metrics.values():
            key = (metric.name, metric.plan.digest)
            known = self._view().get(key)
            loaded[key] = Known(metric.expires, retired=known is not None and known.retired)
        return loaded

    @step
    def retire(self, retired: bool) -> None:
        """Refuse the reports of a plan, or take them again."""
        store = self.any()
        key = self.rng.choice(sorted(self._view()))
        rev = self.oracle.uploads.plans[key].rev
        expires = self._view()[key].expires
        self._change_plans(
            lambda: store.retire(key[0], rev, retired), lambda: self._view() | {key: Known(expires, retired)}
        )

    def _change_plans(self, effect: Callable[[], object], view: Callable[[], View]) -> None:
        struck = self._try(lambda: [effect()]) is None
        self.observer.refresh()
        version, before = self.observer._plans.version, max(self._views)
        assert version == before + 1 or (struck and version == before), f"version {version} came behind {before}"
        if version != before:
            self._views[version] = view()
        stored = self.observer.plans()
        there = {(one.plan.metric, one.plan.digest): Known(one.expires, one.retired) for one in stored}
        assert there == self._view(), f"the plans are {there}, and should be {self._view()}"

    @step
    def contradict(self) -> None:
        """Load a registry that means something else by the same rev: it is refused."""
        store = self.any()
        with pytest.raises(StoreError, match="was loaded before with another meaning"):
            store.load(contradiction(FIRST_DAY))
