"""Each rule beside `dataclasses`, whose part this is."""

import dataclasses
from typing import Any

import pytest

from dither_shared.frozen import as_dict, derived, frozen, replaced


def both(decorate: Any) -> tuple[Any, Any]:
    @decorate
    class Base:
        a: int
        b: str = "b"

    @decorate
    class Grown(Base):
        c: int = 3

        def __post_init__(self) -> None:
            if self.c < 0:
                raise ValueError("c must not be below 0")

    return Base, Grown


OURS, THEIRS = both(frozen), both(dataclasses.dataclass(frozen=True))
ARGUMENTS: list[tuple[tuple[object, ...], dict[str, object]]] = [
    ((1,), {}),
    ((1, "x"), {}),
    ((), {"b": "y", "a": 2}),
    ((1, "x", 4), {}),
    ((1,), {"c": 4}),
    ((), {}),
    ((1, 2, 3, 4), {}),
    ((1,), {"a": 2}),
    ((1,), {"d": 2}),
    ((1, "x", -1), {}),
]


def made(cls: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    try:
        record = cls(*args, **kwargs)
    except (TypeError, ValueError) as error:
        return type(error)
    return repr(record).rpartition(".")[2], dict(vars(record)), hash(record) == hash(cls(*args, **kwargs))


def test_a_record_is_made_shown_and_refused_as_a_dataclass_is() -> None:
    for ours, theirs in zip(OURS, THEIRS, strict=True):
        for args, kwargs in ARGUMENTS:
            assert made(ours, args, kwargs) == made(theirs, args, kwargs), (args, kwargs)


def test_records_are_equal_by_class_and_fields() -> None:
    for base, grown in (OURS, THEIRS):
        assert base(1) == base(1, "b")
        assert base(1) != base(2)
        assert base(1) != grown(1)
        assert base(1) != (1, "b")
        assert len({base(1), base(1), base(2), grown(1)}) == 3


def test_a_record_cannot_be_changed() -> None:
    for base, _ in (OURS, THEIRS):
        record = base(1)
        with pytest.raises(AttributeError):
            record.a = 2
        with pytest.raises(AttributeError):
            del record.a
        assert record.a == 1


def test_fields_are_given_in_order_and_replaced() -> None:
    record = OURS[1](1, c=5)
    assert list(as_dict(record).items()) == [("a", 1), ("b", "b"), ("c", 5)]
    assert as_dict(record) == dataclasses.asdict(THEIRS[1](1, c=5))
    assert replaced(record, a=2) == OURS[1](2, c=5)
    with pytest.raises(ValueError, match="must not be below 0"):
        replaced(record, c=-1)


def test_a_derived_field_is_no_argument() -> None:
    @frozen
    class Square:
        side: int
        area: int = derived()

        def __post_init__(self) -> None:
            object.__setattr__(self, "area", self.side**2)

    assert Square(3).area == 9
    assert as_dict(Square(3)) == {"side": 3}
    with pytest.raises(TypeError):
        Square(3, 9)  # type: ignore[call-arg]
