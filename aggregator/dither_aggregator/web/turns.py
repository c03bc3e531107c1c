"""Turns of the event loop: whatever comes at a time, the loop reads some of it and looks at everything else."""

import asyncio
from collections import deque

TURN_BYTES = 64 * 1024
"""Of bodies that are read in one turn, before everything else has its own."""
COST_MIN = 512


class Turns:
    """Lets through what fits into a turn, at least one body, in the order in which they come."""

    def __init__(self) -> None:
        self._spent = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, length: int) -> None:
        """Wait until a body of this length may be read."""
        cost = max(length, COST_MIN)
        if not self._waiting and self._fits(cost):
            self._spend(cost)
            return
        may: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((cost, may))
        await may

    def _fits(self, cost: int) -> bool:
        return not self._spent or self._spent + cost <= TURN_BYTES

    def _spend(self, cost: int) -> None:
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._begin)
        self._spent += cost

    def _begin(self) -> None:
        """Begin the next turn."""
        self._spent = 0
        while self._waiting and self._fits(self._waiting[0][0]):
            cost, may = self._waiting.popleft()
            if not may.done():  # nobody waits for it any more
                self._spend(cost)
                may.set_result(None)
