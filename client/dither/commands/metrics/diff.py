"""`dither metrics diff`: what an update of the registry does to people's devices and to the numbers.

A finding is what must not happen unnoticed: another meaning under the same rev, something that people did not agree to
(`dither_shared.terms`), answers that are lost. The rest are notes. Losses are told for a device that has used all of
the old registry: it counts metrics that left, and memos that cannot go on, with all that they reserved.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dither_shared.accounting import hundredths
from dither_shared.domains import Domain
from dither_shared.exact import from_micro, to_micro
from dither_shared.mechanisms import DEVICES
from dither_shared.registry import SENSITIVITIES, Metric, Registry
from dither_shared.safe_output import speak_utf8
from dither_shared.terms import DeviceTerms, Terms

SUMMARY = "say what changes for devices and for the numbers; exit code 1 for what must not happen unnoticed"
EXAMPLE = "dither metrics diff released.toml metrics.toml"

_VALUES_SHOWN_MAX = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("old", metavar="OLD", type=Path, help="the metrics.toml that devices have")
    parser.add_argument("new", metavar="NEW", type=Path, help="the one that they are to get")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Show the findings, then the notes, then the verdict; return 1 if there is a finding."""
    remarks = compare(Registry.load(args.old), Registry.load(args.new))
    findings = [remark for remark in remarks if remark.finding]
    notes = [remark for remark in remarks if not remark.finding]
    if args.json:
        print(json.dumps({"findings": _documents(findings), "notes": _documents(notes)}))
        return 1 if findings else 0
    speak_utf8()
    for remark in findings + notes:
        label = "finding" if remark.finding else "note"
        print(f"{label}: {remark.metric or 'the whole registry'}: {remark.detail}")
    verdict = "settle each finding before the release" if findings else f"devices can go from {args.old} to it"
    print(f"{args.new}: {_count(len(findings), 'finding')}, {_count(len(notes), 'note')}: {verdict}")
    return 1 if findings else 0


@dataclass(frozen=True)
class Remark:
    """One thing that the update does."""

    metric: str | None
    """None for the whole registry."""
    what: str
    """"app", "consent", "meaning", "rev", "memo", "fit", "left", or the key that changed."""
    detail: str
    """The consequence, and the next step."""
    finding: bool = True


def _documents(remarks: list[Remark]) -> list[dict[str, object]]:
    return [{key: value for key, value in asdict(remark).items() if key != "finding"} for remark in remarks]


def compare(old: Registry, new: Registry) -> list[Remark]:
    """Return all that an update does, the whole registry first, then each metric in the new order, then those gone."""
    remarks = list(_of_the_whole(old, new))
    for name, metric in new.metrics.items():
        before = old.metrics.get(name)
        remarks += _consent(name, Terms.of(metric).asks(Terms.of(before) if before else None))
        if before:
            remarks += [*_meaning(before, metric), *_memo(before, metric), *_changes(before, metric)]
        remarks += _fit(old, new, metric)
    for name, metric in old.metrics.items():
        if name not in new.metrics:
            detail = f"leaves: devices that were asked it count all it reserved, {_shown(metric.reservation)}, as spent"
            remarks.append(Remark(name, "left", detail, finding=False))
    return remarks


def _of_the_whole(old: Registry, new: Registry) -> Iterator[Remark]:
    if old.app != new.app:
        detail = f"the app changes from {old.app} to {new.app}: devices and aggregator refuse another app's file; "
        yield Remark(None, "app", f"{detail}keep the name {old.app}")
    before, after = DeviceTerms.of(old), DeviceTerms.of(new)
    yield from _consent(None, after.asks(before))
    if new.device_epsilon < old.device_epsilon:
        yield _note(None, "device_epsilon", old.device_epsilon, new.device_epsilon)
    if new.quiet_days != old.quiet_days:
        yield _note(None, "quiet_days", old.quiet_days, new.quiet_days)
    linked = [hundredths(registry.linked) for registry in (old, new)]
    if linked[0] != linked[1] and not after.links(before):
        yield _note(None, f"R({DEVICES})", *linked)


def _consent(metric: str | None, asks: list[str]) -> Iterator[Remark]:
    if asks:
        until = "devices do not answer it" if metric else "devices keep to what was agreed to"
        yield Remark(metric, "consent", f"{'; '.join(asks)}: ask people again; until they agree, {until}")


def _meaning(old: Metric, new: Metric) -> Iterator[Remark]:
    """Yield what another rev means, and what changes without one."""
    changes = list(_meaning_changes(old, new))
    if not changes and old.cells != new.cells:
        changes = ["the mechanism's integers change"]
    changed = "; ".join(changes) or "nothing else changes"
    if new.rev < old.rev:
        again = "" if changes else f", or {old.rev} again"
        yield Remark(new.name, "rev", f"rev falls from {old.rev} to {new.rev}: give it rev {old.rev + 1}{again}")
    elif new.rev > old.rev:
        detail = f"rev {new.rev} starts a series that does not join that of rev {old.rev}: {changed}"
        yield Remark(new.name, "rev", detail, finding=False)
    elif changes:
        yield Remark(new.name, "meaning", f"{changed}; under the same rev: give it rev {old.rev + 1}")


def _meaning_changes(old: Metric, new: Metric) -> Iterator[str]:
    """Yield what alters what an answer or a report means, a phrase each: the question, and the parts of the plan."""
    if old.question != new.question:
        yield "the question changes"
    before, after = _meant(old), _meant(new)
    for key in before | after:
        if before.get(key) != after.get(key):
            yield f"{key} changes from {before.get(key, 'none')} to {after.get(key, 'none')}"
    yield from _list_changes("values", old.values, new.values)
    if old.kind is new.kind and not old.values:
        yield from _domain_changes(old.asked.domain, new.asked.domain)


def _domain_changes(old: Domain, new: Domain) -> Iterator[str]:
    """Yield that answers are told apart in another way, where no list of values says so; of columns, of each."""
    ends = f" from {old.summary} to {new.summary}" if old.summary != new.summary else ""
    if ends or (old != new and not new.columns):
        yield f"what is told apart changes{ends}"
    if old.public[:1] != new.public[:1]:
        yield f"the public column changes from {_or_none(old.public)} to {_or_none(new.public)}"
    else:
        yield from _list_changes("public values", old.public[1:], new.public[1:])
    yield from _list_changes("columns", tuple(old.columns), tuple(new.columns))
    for name, column in new.columns.items():
        if (before := old.columns.get(name, column)) != column:
            lists = bool(before.values and column.values)
            changes = (
                _list_changes("values", before.values, column.values) if lists else _domain_changes(before, column)
            )
            yield from (f"{name}: {change}" for change in changes)


def _meant(metric: Metric) -> dict[str, object]:
    """Return what can be said of a plan in a word or a number. `d` and the thresholds follow from the rest."""
    cells = metric.cells
    facts = {"kind": metric.kind.name, "presence": metric.presence, "mechanism": cells.name}
    if metric.measures:
        facts["measures"] = metric.measures
    epsilons = {"epsilon": _shown(cells.charge)}
    if metric.memoized:
        epsilons["epsilon_permanent"] = _shown(metric.charge)
    shown = ("ticks", "k", "h")
    integers = {key: value for key, value in cells.parameters().items() if key.rpartition(".")[2] in shown}
    return {**facts, **epsilons, **integers, "number of cells": cells.count}


def _or_none(public: tuple[str, ...]) -> str:
    return public[0] if public else "none"


def _list_changes(key: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield what comes to a list and what goes, and whether the rest changes places."""
    known, kept = set(old), set(new)
    come, gone = [value for value in new if value not in known], [value for value in old if value not in kept]
    if come:
        yield f"{key} added: {_some(come)}"
    if gone:
        yield f"{key} removed: {_some(gone)}"
    if [value for value in old if value in kept] != [value for value in new if value in known]:
        yield f"{key} in another order"


def _some(values: list[str]) -> str:
    shown = [json.dumps(value, ensure_ascii=False) for value in values[:_VALUES_SHOWN_MAX]]
    rest = len(values) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def _memo(old: Metric, new: Metric) -> Iterator[Remark]:
    """Yield what becomes of memos that cannot go on, and of a fresh metric that becomes memoized."""
    if old.plan.memo_key == new.plan.memo_key:
        return
    if not old.memoized:
        detail = (
            "becomes memoized: devices that have answered it fall silent, for a memo begins with all its answers left "
            "or not at all; ask it under a new name"
        )
        yield Remark(new.name, "memo", detail)
        return
    ended = f"its memos cannot go on, and devices count all they reserved, {_shown(old.reservation)}, as spent"
    if new.memoized:
        keep = "keep values, mechanism and epsilon_permanent, or ask it under a new name"
        yield Remark(new.name, "memo", f"{ended}: they fall silent; {keep}")
        return
    left = (new.reservation - old.reservation) // new.charge
    if left > 0:
        detail = f"{ended}: they send at most {left:,} of its {new.charges:,} fresh reports"
        yield Remark(new.name, "memo", detail, finding=False)
    else:
        more = f"let it reserve at least {_shown(old.reservation + new.charge)}"
        yield Remark(new.name, "memo", f"{ended}: they fall silent; {more}, or ask it under a new name")


def _fit(old: Registry, new: Registry, metric: Metric) -> Iterator[Remark]:
    """Yield it where a metric's reservation does not fit beside what a device with all the old metrics has reserved.

    A metric counts with the most that it ever reserved. New ones begin in any order: the last finds the others there.
    """
    used = {name: was.reservation for name, was in old.metrics.items()}
    asked = {name: now.reservation for name, now in new.metrics.items()}
    most = {name: max(used.get(name, 0), asked.get(name, 0)) for name in used | asked}
    taken = sum(most[name] for name in used if name != metric.name)
    taken_at_last = sum(most[name] for name in most if name != metric.name)
    epsilon, is_new = to_micro(new.device_epsilon), metric.name not in used
    if taken + metric.reservation > epsilon:
        effect = "silent from the start" if is_new else "silent early, or from the start"
    elif is_new and taken_at_last + metric.reservation > epsilon:
        effect, taken = "silent where the other new metrics begin first", taken_at_last
    else:
        return
    before = old.metrics.get(metric.name)
    goes_on = before is not None and before.memoized and before.plan.memo_key == metric.plan.memo_key
    if goes_on:
        # A memo keeps what it reserved when it began: only its growth is refused.
        effect = "its memos go on with the answers reserved when they began, and no more"
    detail = (
        f"{effect}, on devices that used all the {'' if is_new else 'other '}old metrics: beside {_shown(taken)} that "
        f"they count for others, {_shown(max(0, epsilon - taken))} is left of the {_shown(metric.reservation)} that it "
        f"reserves; raise device_epsilon to {_shown(taken + metric.reservation)}, or let it reserve less"
    )
    yield Remark(metric.name, "fit", detail, finding=not goes_on)


def _changes(old: Metric, new: Metric) -> Iterator[Remark]:
    """Yield the changes that neither alter what is meant nor ask for more."""
    for key, before, after in (
        ("schedule", old.schedule, new.schedule),
        ("owners", ", ".join(old.owners), ", ".join(new.owners)),
    ):
        if before != after:
            yield _note(new.name, key, before, after)
    if SENSITIVITIES.index(new.sensitivity) < SENSITIVITIES.index(old.sensitivity):
        yield _note(new.name, "sensitivity", old.sensitivity, new.sensitivity)
    if new.memoized == old.memoized and new.charges < old.charges:
        yield _note(new.name, "answers" if new.memoized else "reports", old.charges, new.charges)
    if new.period_days > old.period_days:
        yield _note(new.name, "period", f"{old.period_days}d", f"{new.period_days}d")
    if new.expires < old.expires:
        yield _note(new.name, "expires", old.expires, new.expires)
    if new.reservation < old.reservation:
        yield _note(new.name, "epsilon for life", _shown(old.reservation), _shown(new.reservation))
    for change in _list_changes("candidates", old.asked.candidates, new.asked.candidates):
        yield Remark(new.name, "candidates", f"{change}; the series goes on, another list is looked for", finding=False)


def _count(number: int, thing: str) -> str:
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"


def _note(metric: str | None, key: str, before: object, after: object) -> Remark:
    return Remark(metric, key, f"{key} changes from {before} to {after}", finding=False)


def _shown(micro: int) -> str:
    return f"{from_micro(micro):.10g}"
