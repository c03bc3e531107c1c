"""A WSGI answer that is still to come: whoever iterates it waits. A server that knows it need not."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Any


class Later:
    """The answer that `render` makes of a future, which is not done where that took longer than `within_s`.

    `render` calls `start_response`; WSGI allows that when the answer is iterated.
    """

    def __init__(self, future: Future[Any], within_s: float, render: Callable[[Future[Any]], Iterable[bytes]]) -> None:
        self.future = future
        self.within_s = within_s
        self._render = render

    def __iter__(self) -> Iterator[bytes]:
        wait([self.future], self.within_s)
        return iter(self.render())

    def render(self) -> Iterable[bytes]:
        """Make the answer of what is known now."""
        return self._render(self.future)
