"""The keyring: keys are made, taken over from files, revoked, and known to be used."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence

from dither_aggregator.store.interface.opened import SAVE_ATTEMPTS, Opened
from dither_aggregator.store.keys import Key, Keys, new_text
from dither_aggregator.store.records import StoreError


class Keyring(Opened):
    """The keys that let somebody in. Other processes follow with their next refresh."""

    def create_key(self, scope: str, label: str = "") -> tuple[Key, str]:
        """Make a key; return it with its text, which nobody can tell again. Raises StoreError for a bad label."""
        text = new_text(scope)
        return self.register_key(scope, text, label), text

    def register_key(self, scope: str, text: str, label: str = "") -> Key:
        """Take over a key by its text. Raises StoreError for one that is too weak, or known already."""
        self._change_keys(lambda keys: keys.adding(scope, text, label, self.clock_day()))
        key = self._keys.find(text.encode())
        assert key
        return key

    def revoke_key(self, id_: str, *, wait: bool = False) -> Key:
        """Let nobody in with a key from now on; return it as it is then.

        With `wait`, uploads that show it are to come again later, until it is revoked for good. Raises StoreError for
        a key there is not, and to wait with one that is no write key or was revoked before.
        """
        self._change_keys(lambda keys: keys.revoking(id_, wait))
        return self._keys.by_id[id_]

    def use_keys(self, ids: Iterable[str]) -> None:
        """Remember that some keys were shown today. Writes something at most once a day for each."""
        shown = list(ids)
        if self._keys.used(shown, self.clock_day()):
            self._change_keys(lambda keys: keys.used(shown, self.clock_day()))

    def _change_keys(self, change: Callable[[Keys], Sequence[Key]]) -> None:
        for _ in range(SAVE_ATTEMPTS):
            self.refresh()
            keys = self._keys  # once: another thread may refresh it
            if self._save_keys(change(keys), keys.version):
                return self.refresh()
        raise StoreError("the keys are being changed by somebody else all the time; try again")

    @abstractmethod
    def _save_keys(self, keys: Sequence[Key], version: int) -> bool:
        """Store keys by their ids *if the stored version is still this one*, with the next; return whether it was."""
