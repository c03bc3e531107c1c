"""A flag: yes or no."""

from __future__ import annotations

from dither_shared.domains import Values
from dither_shared.kinds.kind import Asked, Offer
from dither_shared.kinds.listed import Listed
from dither_shared.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

NO, YES = 0, 1


class FlagKind(Listed):
    """A yes-or-no question. It takes True and False, numpy's too; all else is read as False, whatever its truth."""

    name = "flag"
    meaning = "for yes or no"
    aliases = ("bool", "boolean", "yes/no", "toggle")
    starter = 'question = "Do people use it?"'
    web_type = "boolean"
    published = True
    estimand = "one share"

    def _values(self, table: TomlTable, directory: str | None, unlisted: tuple[str, ...]) -> tuple[str, ...]:
        return ("no", "yes", *unlisted)

    def takes(self, answer: object, domain: Values) -> bool:
        """Tell whether an answer is True or False, or numpy's. The type says it: `__bool__` is not called."""
        kind = type(answer)
        return kind is bool or (kind.__module__, kind.__name__) in _NUMPY_BOOLS

    def read(self, answer: object, domain: Values) -> tuple[int, ...]:
        """Return yes for True, else no."""
        return (YES if self.takes(answer, domain) and bool(answer) else NO,)

    def misread(self, domain: Values) -> str:
        """Say that it is sent as False."""
        return "takes True and False: anything else is sent as False"

    def unreadable(self, domain: Values) -> tuple[int, ...]:
        """Return no."""
        return (NO,)

    def nothing(self, domain: Values) -> tuple[int, ...]:
        """Return the value "none", the last one."""
        return (len(domain.values) - 1,)

    def offer(self, asked: Asked) -> Offer:
        """Return the two answers."""
        return Offer(("Yes or no.",))

    def examples(self, asked: Asked) -> list[object]:
        """Return both answers."""
        return [True, False]


_NUMPY_BOOLS = {("numpy", "bool"), ("numpy", "bool_")}
"""The type of numpy's True and False, in version 2 and before, by its module and name: numpy is not imported."""
