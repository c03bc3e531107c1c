"""Tables: the exact law of all that a device sends of one, over all columns together."""

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import combinations, count
from math import inf, nan, prod
from random import Random
from typing import cast

import pytest

from dither_shared.domains import Columns, Values
from dither_shared.errors import InvalidParameter, RegistryError
from dither_shared.exact import exp_below
from dither_shared.frozen import replaced
from dither_shared.kinds import Answer
from dither_shared.kinds.table import TableKind
from dither_shared.mechanisms import GRR, Cells, PureMechanism
from dither_shared.plan import Plan
from dither_shared.registry import Metric, Registry
from dither_shared.rng import SCALE, Rng
from dither_shared.terms import Terms
from tests.support.laws import Law, largest_ratio, law_of, law_of_class
from tests.support.numbers import SYMBOLS_MAX, law_of_report, numbers_text
from tests.support.soaking import thinned
from tests.support.tables import EPSILONS, LIGHT, answers_of, domain_of, table, tables

NEAR = 1 - Fraction(1, 10**9)
KIND = TableKind()
PAIRS = 'a = ["x", "y"], b = ["u"], c = ["s"], d = { low = 0, high = 10, asks = ["mean"] }, e = ["v"]'
"""Five columns, of 3, 2, 2, 3 and 2 symbols: ten pairs."""
PRODUCT = 'a = ["x"], b = ["u"], c = ["s"]'
"""Three columns of 2 symbols."""
RANGES = 'a = ["x"], b = { edges = [18, 65] }'
"""Two columns of 2 and 4 symbols."""

SIXTEEN = ", ".join(f'q{place} = ["never", "often"]' for place in range(14)) + (
    ', age = { edges = [18, 65] }, rating = { low = 0, high = 10, asks = ["mean"] }'
)
"""Sixteen columns, of 3 symbols but one of 4: 120 pairs, and 57,395,628 cells in all."""

METRICS = [
    table(columns, epsilon=epsilon, presence=presence)
    for columns, epsilons in (
        (LIGHT, EPSILONS),
        (PRODUCT, EPSILONS[1:]),
        (RANGES, EPSILONS[1:2]),
        (PAIRS, EPSILONS[1:]),
    )
    for epsilon in epsilons
    for presence in ("public", "hidden")
]


def named(metric: Metric) -> str:
    return f"{len(domain_of(metric).names)} columns, epsilon {metric.epsilon}, {metric.presence}"


# The law.


@pytest.mark.parametrize("metric", METRICS, ids=named)
def test_whichever_columns_change_a_report_loses_the_declared_epsilon_and_each_cell_has_its_share(
    metric: Metric,
) -> None:
    laws, domain = [law_of_table(metric, read) for read in answers_of(metric)], domain_of(metric)
    assert all(sum(law.values()) == 1 for law in laws)
    assert largest_ratio(laws) == metric.cells.exp_epsilon
    check_parts(metric.cells, metric.epsilon)
    for law in laws:
        check_cells(metric, law)
    for question, part in enumerate(metric.cells.parts):
        assert cast("PureMechanism", part.mechanism).d == domain.symbols(question)
        for read in answers_of(metric):
            assert all(0 <= symbol < domain.symbols(question) for symbol in law_of_classes(metric, read, question))


@pytest.mark.parametrize("presence", thinned(["public", "hidden"], 1))  # with an answer more
def test_one_report_of_sixteen_columns_loses_the_declared_epsilon_and_no_more(presence: str) -> None:
    """Answers that differ in a pair meet what can be lost, and sixteen of them differ in each."""
    metric = table(SIXTEEN, epsilon=2, presence=presence)
    draw = Random(16)
    symbols = [len(domain_of(metric).labels(column)) for column in range(16)]
    ways = [(0, SCALE // 3, SCALE, SCALE + 1) if column == 15 else range(size) for column, size in enumerate(symbols)]
    answers: list[Answer] = [tuple(map(draw.choice, ways)) for _ in range(16)]
    laws = [law_of_table(metric, read) for read in (*answers, *[()] * metric.hidden)]
    assert metric.cells.count == 120
    assert largest_ratio(laws) == metric.cells.exp_epsilon
    check_parts(metric.cells, metric.epsilon)
    check_cells(metric, laws[-1])


def check_parts(cells: Cells, epsilon: Decimal) -> None:
    """Each pair gets the whole epsilon: one above it would break the promise, one below it would waste accuracy."""
    wanted = exp_below(Decimal(epsilon))
    for part in cells.parts:
        assert wanted * NEAR < part.mechanism.exp_epsilon <= wanted


def check_cells(metric: Metric, law: Law) -> None:
    """No answer makes one question likelier than another."""
    shares = dict.fromkeys(range(metric.cells.count), Fraction(0))
    for outcome, probability in law.items():
        shares[outcome // SYMBOLS_MAX] += probability
    assert set(shares.values()) == {Fraction(1, metric.cells.count)}


def law_of_table(metric: Metric, read: Answer, draw: Callable[[Rng], int] | None = None) -> Law:
    """Return the probability of every cell and report, exactly: the cell, then the class, then its report."""
    mixed: Law = {}
    for cell, share in law_of(draw or metric.cells.draw).items():
        for symbol, weight in law_of_classes(metric, read, cell).items():
            for report, probability in law_of_symbol(metric.cells.mechanism_of(cell), symbol).items():
                outcome = cell * SYMBOLS_MAX + report
                mixed[outcome] = mixed.get(outcome, Fraction(0)) + share * weight * probability
    return mixed


law_of_symbol = cache(law_of_class)


def test_a_device_sends_by_that_law() -> None:
    """Three steps above, and the device's own order of them here."""
    metric = table(LIGHT)
    for read in answers_of(metric):
        assert law_of_report(metric, read) == law_of_table(metric, read)


def law_of_classes(metric: Metric, read: Answer, cell: int) -> Law:
    return law_of(lambda rng: metric.class_of(read, cell, rng))


def test_a_symbol_is_that_of_the_cell_of_its_columns_answers_the_last_fastest() -> None:
    metric = table(PRODUCT)
    read = metric.read({"a": "x", "b": None, "c": "s"})
    assert law_of_classes(metric, read, 0) == {(0 * 2 + 1) * 2 + 0: 1}
    metric = table(RANGES)
    assert law_of_classes(metric, metric.read({"a": "else", "b": 30}), 0) == {1 * 4 + 1: 1}
    assert law_of_classes(metric, metric.read({"a": "else", "b": None}), 0) == {1 * 4 + 3: 1}
    metric = table(PAIRS)
    read = metric.read({"a": "y", "b": "u", "c": "else", "d": "no number"})
    symbols = [next(iter(law_of_classes(metric, read, cell))) for cell in range(10)]
    places, sizes = (1, 0, 1, 2, 1), (3, 2, 2, 3, 2)
    assert symbols == [places[a] * sizes[b] + places[b] for a, b in combinations(range(5), 2)]


def test_a_number_is_rounded_to_an_end_so_that_its_mean_stays() -> None:
    metric = table(PAIRS)
    cell = domain_of(metric).questions.index((1, 3))
    for number, high in ((2.5, Fraction(1, 4)), (-7, Fraction(0)), (10**400, Fraction(1)), (inf, Fraction(1))):
        law = law_of_classes(metric, metric.read({"b": "u", "d": number}), cell)
        assert law.get(1, Fraction(0)) == high
        assert law.get(0, Fraction(0)) == 1 - high
    for what in (None, nan, True, "3"):
        assert law_of_classes(metric, metric.read({"b": "u", "d": what}), cell) == {2: 1}


def test_none_is_the_last_symbol_of_every_question() -> None:
    metric = table(PAIRS, presence="hidden")
    domain = domain_of(metric)
    for cell in range(metric.cells.count):
        assert law_of_classes(metric, metric.nothing, cell) == {prod(domain.shape(cell)): 1}


# Planted bugs.

SPOILT = table(LIGHT, epsilon=1)
THREE = table(PAIRS, epsilon=1)


def spoiled_laws(metric: Metric, send: Callable[[tuple[int, ...], Rng], int]) -> Sequence[Law]:
    def sent(read: Answer) -> Law:
        return law_of(lambda rng: send(cast("tuple[int, ...]", read), rng))

    return [sent(read) for read in answers_of(metric)]


def test_a_pair_that_is_chosen_from_the_values_would_be_caught() -> None:
    def law(read: Answer) -> Law:
        return law_of_table(THREE, read, (lambda rng: 0) if read[0] == 1 else None)

    laws = [law(read) for read in answers_of(THREE)]
    with pytest.raises(AssertionError, match="infinite"):
        largest_ratio(laws)
    with pytest.raises(AssertionError):
        check_cells(THREE, law((1, 0, 0, 0, 0)))


def test_a_column_sampled_at_an_amplified_epsilon_with_made_up_others_would_be_caught() -> None:
    """RS+FD: one column at ln(k (e^eps - 1) + 1), uniform lies for the others. It is no epsilon over all columns."""
    amplified = [GRR.for_epsilon(size, Decimal("1.489")) for size in (2, 3)]  # ln(2 (e - 1) + 1)

    def send(read: tuple[int, ...], rng: Rng) -> int:
        told = rng.uniform(2)
        symbols = [
            mechanism.randomize(place, rng) if column == told else rng.uniform(mechanism.d)
            for column, (mechanism, place) in enumerate(zip(amplified, read, strict=True))
        ]
        return symbols[0] * 3 + symbols[1]

    assert largest_ratio(spoiled_laws(SPOILT, send)) > SPOILT.cells.exp_epsilon


def test_each_column_at_the_full_epsilon_would_be_caught() -> None:
    """Epsilon by attribute, sold as that of a person."""
    each = [GRR.for_epsilon(size, Decimal(1)) for size in (2, 3)]

    def send(read: tuple[int, ...], rng: Rng) -> int:
        first, second = (mechanism.randomize(place, rng) for mechanism, place in zip(each, read, strict=True))
        return first * 3 + second

    assert largest_ratio(spoiled_laws(SPOILT, send)) > SPOILT.cells.exp_epsilon


def test_pairs_at_different_epsilons_would_be_caught() -> None:
    parts = [
        Cells((part,)).parts[0] if place else type(part)(GRR.for_epsilon(6, Decimal(2)))
        for place, part in enumerate(THREE.cells.parts)
    ]
    with pytest.raises(AssertionError):
        check_parts(Cells(tuple(parts)), Decimal(1))


# The content of a report.


def test_a_report_tells_all_columns_where_that_has_less_error_and_a_pair_where_not() -> None:
    """Both sides of the rule, once more and in floats."""
    assert len(domain_of(table(PRODUCT)).questions) == 1
    assert domain_of(table(PAIRS)).questions == tuple(combinations(range(5), 2))
    for sizes in ((2, 2), (2, 2, 2), (3, 3, 3), (2, 2, 2, 2), (5, 5, 5, 5), (2, 9, 40), (2, 2, 2, 2, 2, 2, 2, 2)):
        columns = ", ".join(
            f"c{place} = [{', '.join(repr(str(value)) for value in range(size - 1))}]"
            for place, size in enumerate(sizes)
        )
        pairs = [a * b for a, b in combinations(sizes, 2)]
        of_all = sum((prod(sizes) * pair) ** 0.5 for pair in pairs)
        of_pairs = len(pairs) ** 0.5 * sum(pairs)
        whole = len(domain_of(table(columns.replace("'", '"'))).questions) == 1
        assert whole == (len(sizes) == 2 or of_all < of_pairs), sizes


def test_a_plan_of_a_table_survives_its_document_and_every_column_decides_its_digest() -> None:
    for metric in METRICS:
        assert Plan.from_document(metric.plan.to_document()) == metric.plan
    digests = {
        table(columns).plan.digest
        for columns in (LIGHT, 'b = ["u", "v"], a = ["x"]', 'a = ["x"], b = ["v", "u"]', 'a = ["x"], c = ["u", "v"]')
    }
    assert len(digests) == 4


# Reading answers.


class Raising:
    """An answer whose methods raise."""

    def __hash__(self) -> int:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise ValueError


def test_what_is_missing_or_not_listed_is_other_in_its_column_alone() -> None:
    metric = table(PAIRS)
    for answer, told in (
        ({"a": "x", "b": "u", "c": "s", "d": 5}, ["a = x", "b = u", "c = s", "d = 5", "e = other"]),
        ({"a": "x"}, ["a = x", "b = other", "c = other", "d = other", "e = other"]),
        ({"a": Raising(), "b": "u", "d": Raising()}, ["a = other", "b = u", "c = other", "d = other", "e = other"]),
        ({"a": ["x"], "b": 1, "c": b"s", "d": "5"}, ["a = other", "b = other", "c = other", "d = other", "e = other"]),
        ({"a": "x", "nonsense": 1, "e": "w"}, ["a = x", "b = other", "c = other", "d = other", "e = other"]),
        (None, ["a = other", "b = other", "c = other", "d = other", "e = other"]),
        ("x", ["a = other", "b = other", "c = other", "d = other", "e = other"]),
    ):
        assert list(metric.names(answer)) == told


def test_it_takes_mappings_of_its_columns_to_what_they_list() -> None:
    metric = table(PAIRS)
    assert all(map(metric.takes, ({"a": "x", "d": 3.5}, {}, {"b": "u"})))
    for answer in ({"a": "z"}, {"a": "x", "e": 1}, {"d": True}, {"d": "3"}, None, [("a", "x")], "x", {1: 2}):
        assert not metric.takes(answer)


# The registry.


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ('a = ["x"]', "columns must be 2 to 16, got 1"),
        (", ".join(f'c{place} = ["x"]' for place in range(17)), "columns must be 2 to 16, got 17"),
        ('a = ["x"], b = ["other"]', 'metric.asked.columns: b must leave out "other"'),
        ('a = ["x"], b = []', "b must be a list of 1 to 1000 texts"),
        ('a = ["x"], B = ["y"]', "a name must match"),
        ('a = ["x"], b = 3', "b must be a list"),
        ('a = ["x"], b = { edges = [3, 3] }', "edges must strictly increase"),
        ('a = ["x"], b = { edges = [3, 4], many = 1 }', "many is not a key"),
        ('a = ["x"], b = { low = 0, high = 1, asks = ["quantiles", "mean"] }', 'asks must be ["mean"]'),
        (
            ", ".join(f"c{place} = {[str(value) for value in range(99)]}" for place in range(4)),
            "at most 1,000,000 cells together, or 20,000 in all pairs of them, got 100,000,000 and 60,000",
        ),
    ],
)
def test_a_mistake_in_the_columns_names_its_place(columns: str, message: str) -> None:
    with pytest.raises(RegistryError) as refused:
        table(columns.replace("'", '"'))
    assert message in str(refused.value)


def listed(sizes: Sequence[int]) -> str:
    """Return columns that list so many values."""
    return ", ".join(f"c{place} = {json.dumps(list(map(str, range(n))))}" for place, n in enumerate(sizes))


def test_a_table_may_have_many_cells_or_many_pairs() -> None:
    few, many = (listed([n] * 16) for n in (11, 12))
    assert len(domain_of(table(few)).questions) == 120
    with pytest.raises(RegistryError, match=r"20,000 in all pairs of them, got .* and 20,280"):
        table(many)
    assert domain_of(table(listed([249, 249, 15]))).size == 1_000_000
    domain = domain_of(table(few))
    wide = Values((*map(str, range(12)), "other"))
    with pytest.raises(InvalidParameter, match="in all pairs of them"):
        replaced(domain, domains=(wide,) * 16)


def test_two_columns_that_nobody_could_read_in_time_are_refused() -> None:
    columns = ", ".join(f"c{place} = {[str(value) for value in range(256)]}" for place in range(2))
    with pytest.raises(RegistryError, match="told together must have at most 65,535 cells, got 66,049"):
        table(columns.replace("'", '"'))


class Endless(dict[str, object]):
    """A mapping whose keys never end."""

    def __iter__(self) -> Iterator[str]:
        return map(str, count())


def test_an_answer_whose_keys_never_end_is_read_as_far_as_there_are_columns() -> None:
    metric = table(LIGHT)
    answer = Endless(a="x", b="u")
    assert not metric.takes(answer)
    assert metric.names(answer) == ("a = x", "b = u")


@pytest.mark.parametrize("key", [{"memoize": True}, {"epsilon_permanent": 3}, {"answers": 2}])
def test_a_memo_for_each_pair_is_refused(key: dict[str, object]) -> None:
    with pytest.raises(RegistryError, match="must be left out of a table"):
        table(LIGHT, **key)


# The public column.


def test_cells_come_once_for_each_public_value_and_a_report_is_in_its_own() -> None:
    plain, metric = table(PAIRS), table(PAIRS, 'arm = ["a", "b", "c"]')
    assert metric.cells.parts == plain.cells.parts
    assert (metric.cells.count, metric.cells.each, metric.cells.tally_size) == (30, 10, 3 * plain.cells.tally_size)
    assert metric.cells.exp_epsilon == plain.cells.exp_epsilon
    for place in range(3):
        cells = law_of(lambda rng, place=place: metric.cells.draw(rng, place))  # type: ignore[misc]
        assert cells == dict.fromkeys(range(10 * place, 10 * place + 10), Fraction(1, 10))
    read = metric.read({"a": "y", "d": 10})
    for cell in range(30):
        assert law_of_classes(metric, read, cell) == law_of_classes(plain, read, cell % 10)
    assert Plan.from_document(metric.plan.to_document()) == metric.plan
    assert metric.plan.digest != plain.plan.digest


def test_an_arm_that_is_read_off_the_answer_would_be_caught() -> None:
    metric = table(LIGHT, 'arm = ["a", "b"]', epsilon=1)

    def peeking(read: tuple[int, ...], rng: Rng) -> int:
        cell = metric.cells.draw(rng, int(read[0] == 1))
        mechanism = cast("PureMechanism", metric.cells.mechanism_of(cell))
        return cell * SYMBOLS_MAX + mechanism.randomize(metric.class_of(read, cell, rng), rng)

    with pytest.raises(AssertionError, match="infinite"):
        largest_ratio(spoiled_laws(metric, peeking))


@pytest.mark.parametrize(
    ("public", "keys", "message"),
    [
        ('arm = ["a", "b"]', {"presence": "hidden"}, 'presence must be "public" beside the public column arm'),
        ('arm = ["a"]', {}, "arm must have two values or more"),
        (f"arm = {[str(value) for value in range(17)]}", {}, "arm must be a list of 1 to 16 texts"),
        ('arm = ["a", "b"], os = ["c", "d"]', {}, "public must name one column, got 2"),
        ('a = ["a", "b"]', {}, "columns must fit beside the public column a"),
    ],
)
def test_a_mistake_in_the_public_column_names_its_place(public: str, keys: dict[str, object], message: str) -> None:
    with pytest.raises(RegistryError) as refused:
        table(LIGHT, public.replace("'", '"'), **keys)
    assert message in str(refused.value)


def test_a_public_column_without_a_table_is_refused() -> None:
    text = numbers_text(asked={"low": 0, "high": 1, "buckets": 2, "reports": 1})
    with pytest.raises(RegistryError, match="public is for tables, and there is none"):
        Registry.parse(text.replace("quiet_days = 0", 'public = { arm = ["a", "b"] }'))


def test_consent_is_asked_again_for_a_public_column_that_is_new_or_has_other_values() -> None:
    terms = [
        Terms.of(tables(LIGHT, public).metrics["asked"])
        for public in ("", 'arm = ["a", "b"]', 'arm = ["b", "a"]', 'arm = ["a", "c"]', 'group = ["a", "b"]')
    ]
    bare, arms, turned, others, renamed = terms
    assert turned.asks(arms) == []
    for now, before in ((arms, bare), (others, arms), (renamed, arms), (bare, arms)):
        assert now.asks(before) == ["its possible answers change"]


def test_the_domain_says_its_columns_and_what_is_public() -> None:
    domain = domain_of(table(PAIRS, 'arm = ["a", "b"]'))
    assert isinstance(domain, Columns)
    assert domain.summary == "5 columns of 72 cells asked in pairs, beside arm"
    assert domain.labels(3) == ("0", "10", "other")
    offer = KIND.offer(table(PAIRS, 'arm = ["a", "b"]').asked)
    assert offer.after[-1] == "Reports say arm in the clear: a, b."
