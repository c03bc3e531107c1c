"""The forms of pages, made of what parameters declare of themselves: labels, choices, and how fields look."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from flask import request
from marshmallow import fields, missing, validate

from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.query_parameters import Parameters

LIST_SIZE_LEAST, LIST_SIZE_MOST = 14, 30
"""Characters that a field of a list shows: a value that is cut could be read as another one."""


@dataclass(frozen=True)
class FormField:
    """A field of a form."""

    name: str
    label: str
    value: str
    choices: Mapping[str, str] | None = None
    """The words of each value on offer; None where any may be typed."""
    look: Mapping[str, object] = field(default_factory=dict)
    """Further attributes of its input."""
    offers: Mapping[str, str] | None = None
    """The words of values that are offered to who types one, where these are the last field with them."""


def form(
    schema: type[Parameters],
    shown: Mapping[str, Any],
    choices: Mapping[str, Collection[str]] | None = None,
    first: Sequence[str] = (),
) -> list[FormField]:
    """Return the fields of all parameters that have a label: some `first`, then the others as they are declared.

    A parameter that is shown as None has no field. `choices` are those that the store knows, by their words if these
    are others.
    """
    declared, known = schema().fields, choices or {}
    return [
        each
        for name in dict.fromkeys((*first, *declared))
        if declared[name].metadata.get("label") and shown.get(name, "") is not None
        for each in _fields(declared[name], shown.get(name, ""), known.get(name))
    ]


def as_typed(schema: type[Parameters]) -> dict[str, str]:
    """Return the parameters of the request as they were sent, and the usual ones of what was left empty."""
    usual = {name: "" if each.load_default is missing else each.load_default for name, each in schema().fields.items()}
    return {name: request.args.get(name) or f"{default}" for name, default in usual.items()}


def plans_of(store: Store, stored: StoredPlan) -> dict[str, str]:
    """Return the plans of a metric, each with its rev; none where there is nothing to choose."""
    plans = {each.plan.digest: str(each.plan.rev) for each in store.plans(stored.plan.metric)}
    return plans if len(plans) > 1 else {}


def _fields(declared: fields.Field[Any], value: Any, choices: Collection[str] | None) -> Iterator[FormField]:
    name, label = str(declared.data_key or declared.name), declared.metadata["label"]
    look = {**getattr(declared, "look", {}), **declared.metadata["look"]}
    if choices is None and isinstance(declared.validate, validate.OneOf):
        choices = declared.metadata.get("words") or list(declared.validate.choices)
    words = choices if isinstance(choices, Mapping) or choices is None else {each: each for each in choices}
    if isinstance(declared, fields.List):
        assert isinstance(declared.validate, validate.Length)
        slots = [*value, ""][: declared.validate.max]  # one more than are named
        size = min(max(LIST_SIZE_LEAST, *map(len, slots)), LIST_SIZE_MOST)
        for place, each in enumerate(slots, 1):
            offers = words if place == len(slots) else None
            yield FormField(name, f"{label} {place}", each, look={"list": name, "size": size}, offers=offers)
        return
    written = f"{value:f}" if isinstance(value, Decimal) else f"{value}"
    yield FormField(name, label, written, words, look)
