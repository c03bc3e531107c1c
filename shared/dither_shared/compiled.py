"""A registry in its compiled form: `metrics.json`, which an app ships in the place of `metrics.toml`.

`dither metrics compile` writes it, and `shared/compiled.md` describes it. It holds all that a device needs, with every
choice made: a start parses no TOML and chooses no mechanism. Integers that may be above 2^53 are texts. The digest is
over all of it, so that a file which was damaged, or changed by hand, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from types import MappingProxyType

from dither_shared import domains
from dither_shared.errors import DitherError, InvalidParameter, refusal_of
from dither_shared.files import BYTE_ORDER_MARK, ITEMS_MAX, KEYS_MAX
from dither_shared.frozen import as_dict, sha256
from dither_shared.installed import load
from dither_shared.kinds import KINDS, Asked, PublicColumn
from dither_shared.light_typing import Any
from dither_shared.mechanisms import Cells
from dither_shared.registry import Metric, Registry, prove_budget
from dither_shared.terms import DeviceTerms, Terms

VERSION = 1
FORMAT = "dither_registry"
"""The key whose value is the version: no other JSON file has it."""
_STEP = "`dither metrics compile metrics.toml --out metrics.json` writes it again"
_SHORT = 64 * 1024
"""Characters of a text that may have as many brackets and commas as fit."""


def to_document(registry: Registry, sentences: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Return the document of a registry and of the sentences of its terms."""
    document = {
        FORMAT: VERSION,
        "app": registry.app,
        "device_epsilon": str(registry.device_epsilon),
        "quiet_days": registry.quiet_days,
        "linkable": registry.linkable,
        "evicted": registry.evicted,
        **({"nearly_certain": True} if registry.nearly_certain else {}),  # readers of before pass over it
        "linked": _text(registry.linked),
        "public": registry.public and {"name": registry.public.name, "values": list(registry.public.values)},
        "unused_lists": list(registry.unused),
        "terms": as_dict(DeviceTerms.of(registry)),
        "sentences": list(sentences),
        "metrics": [_of_metric(metric) for metric in registry.metrics.values()],
    }
    return {**document, "digest": sha256(document)}


def _of_metric(metric: Metric) -> dict[str, object]:
    asked = metric.asked
    return {
        "plan": {
            **metric.plan.to_document(),
            "domain": _with(str, asked.domain.to_document(), "edges"),
            "cells": _with(str, asked.cells.to_document(), *_INTEGERS),
        },
        "digest": metric.plan.digest,
        "memo_key": metric.plan.memo_key,
        "epsilon": str(metric.epsilon),
        "schedule": metric.schedule,
        "owners": list(metric.owners),
        "linked": _text(metric.linked),
        "terms": Terms.of(metric).to_document(),
        **({"measures": metric.measures} if metric.measures else {}),  # readers of before pass over it
        **({"alphabet": table} if (table := asked.domain.table) else {}),
        "aggregator": {
            "candidates": list(asked.candidates),
            "candidates_expected": asked.candidates_expected,
            "passed_over": asked.passed_over and _with(str, asked.passed_over.to_document(), *_INTEGERS),
            "answers": asked.answers,
        },
    }


_INTEGERS = ("parameters", "memo")
"""The keys of a mechanism's integers."""


def _text(number: float | None) -> str | None:
    return None if number is None else repr(number)


def _with(change: type, document: Any, *keys: str, below: bool = False) -> Any:
    """Return a document in which every number below some keys is changed, into a text or back."""
    if isinstance(document, dict):
        return {name: _with(change, value, *keys, below=below or name in keys) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_with(change, item, *keys, below=below) for item in document]
    return change(document) if below else document


def read(text: str, source: str) -> Registry:
    """Return the registry of a compiled text; raise RegistryError, with the next step, for one that is not whole."""
    document = _document(text, source)
    cells: dict[str, Cells] = {}  # one object for equal ones: what is computed of it is computed once
    try:
        metrics = [_metric(metric, cells) for metric in document["metrics"]]
        public = document["public"]
        registry = Registry(
            document["app"],
            Decimal(document["device_epsilon"]),
            document["quiet_days"],
            MappingProxyType({metric.name: metric for metric in metrics}),
            public and PublicColumn(public["name"], tuple(public["values"])),
            document["linkable"],
            document.get("nearly_certain", False),
            tuple(document["unused_lists"]),
            document.get("evicted", False),
        )
        _know(registry, linked=_float(document["linked"]))
    except (DitherError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise refusal_of(source, f"cannot be used by this dither: {error!r}; {_STEP}") from None
    prove_budget(registry, source)
    return registry


def _document(text: str, source: str) -> dict[str, Any]:
    """Return the document of a text, if it is a compiled registry of this version, and whole."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    try:
        _check_size(text)
        document = json.loads(text)
        if type(document) is not dict or FORMAT not in document:
            raise refusal_of(source, f"must be a compiled registry, with a key {FORMAT}: {_STEP}")
        if document[FORMAT] != VERSION:
            found = f"must be of version {VERSION}, got {document[FORMAT]!r}"
            raise refusal_of(source, f"{found}: compile it with this dither, or install the one that compiled it")
        stated = document.pop("digest", None)
        whole = sha256(document) == stated
    except RecursionError:
        raise refusal_of(source, f"must be a compiled registry, got one that is nested too deep: {_STEP}") from None
    except ValueError as error:
        if isinstance(error, DitherError):
            raise
        raise refusal_of(source, f"must be a compiled registry, in JSON: {error}; {_STEP}") from None
    if not whole:
        raise refusal_of(source, f"is not what was compiled, but damaged or changed: change metrics.toml; {_STEP}")
    return document


def _check_size(text: str) -> None:
    """Refuse too much of anything outside of strings, before it is parsed."""
    if len(text) <= _SHORT:
        return
    import re  # only for a long text

    bare = re.sub(r'"(?:[^"\\]++|\\.)*+"?', "", text, flags=re.DOTALL)
    if bare.count("[") + bare.count("{") > KEYS_MAX:
        raise ValueError(f"there must be at most {KEYS_MAX:,} lists and objects")
    if bare.count(",") > ITEMS_MAX:
        raise ValueError(f"there must be at most {ITEMS_MAX:,} items")


def _metric(document: dict[str, Any], made: dict[str, Cells]) -> Metric:
    plan, terms, more = document["plan"], document["terms"], document["aggregator"]
    passed_over = more["passed_over"]
    named, table = plan["domain"].get("alphabet"), document.get("alphabet")
    if named and (table is None or load("dither_shared.words.alphabets:know")(table) != named):
        raise InvalidParameter(f"metric {plan['metric']} must have the alphabet that its plan names")
    asked = Asked(
        domains.from_document(_with(int, plan["domain"], "edges")),
        _cells(plan["cells"], made),
        tuple(more["candidates"]),
        more["candidates_expected"],
        passed_over and _cells(passed_over, made),
        more["answers"],
    )
    metric = Metric(
        plan["metric"],
        plan["rev"],
        KINDS[plan["kind"]],
        terms["question"],
        asked,
        Decimal(document["epsilon"]),
        terms["charges"],
        plan["presence"],
        terms["period_days"],
        document["schedule"],
        tuple(document["owners"]),
        terms["sensitivity"],
        date.fromisoformat(terms["expires"]),
        measures=document.get("measures", ""),
    )
    if metric.measures and metric.measures not in load("dither_shared.measures:MEASURES"):
        raise InvalidParameter(f"metric {metric.name} measures {metric.measures!r}, which this dither does not know")
    _know(metric, linked=_float(document["linked"]))
    return metric


def _cells(document: dict[str, Any], made: dict[str, Cells]) -> Cells:
    key = repr(document)
    if key not in made:
        made[key] = Cells.from_document(_with(int, document, *_INTEGERS))
    return made[key]


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def _know(record: object, **facts: object) -> None:
    """Keep what a record would compute when it is first asked."""
    vars(record).update(facts)
