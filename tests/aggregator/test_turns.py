"""Turns of the loop: what is read in one, and in which order."""

import asyncio
from contextlib import suppress

from dither_aggregator.web.turns import COST_MIN, TURN_BYTES, Turns


async def _read(lengths: list[int], cancelled: set[int]) -> list[tuple[int, int]]:
    """Take turns for these lengths at once; return which was read in which turn of the loop."""
    turns, turn, read = Turns(), 0, []

    async def take(number: int) -> None:
        await turns.take(lengths[number])
        read.append((number, turn))

    tasks = [asyncio.create_task(take(number)) for number in range(len(lengths))]
    for _ in range(2 * len(lengths) + 5):
        await asyncio.sleep(0)
        turn += 1
        for number in cancelled:
            tasks[number].cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
    return read


def read(lengths: list[int], cancelled: set[int] = frozenset()) -> list[tuple[int, int]]:  # type: ignore[assignment]
    return asyncio.run(_read(lengths, cancelled))


def by_turn(done: list[tuple[int, int]]) -> list[list[int]]:
    turns: dict[int, list[int]] = {}
    for number, turn in done:
        turns.setdefault(turn, []).append(number)
    return list(turns.values())


def test_each_turn_reads_what_fits_in_the_order_of_coming() -> None:
    half, more = TURN_BYTES // 2, TURN_BYTES // 2 + 1
    assert by_turn(read([half, half, half, more, 10])) == [[0, 1], [2], [3, 4]]


def test_what_is_longer_than_a_turn_has_one_to_itself() -> None:
    assert by_turn(read([5 * TURN_BYTES, 1, 5 * TURN_BYTES, 1])) == [[0], [1], [2], [3]]


def test_even_nothing_costs_something() -> None:
    a_turn = TURN_BYTES // COST_MIN
    assert list(map(len, by_turn(read([0] * (2 * a_turn + 1))))) == [a_turn, a_turn, 1]


def test_nobody_waits_for_one_that_was_given_up() -> None:
    assert [number for number, _ in read([TURN_BYTES] * 6, {2, 3})] == [0, 1, 4, 5]
