"""Links by which another site shows a metric's answer: signed, with an end, and worth as much as the key behind them.

    /embed/KEY.END.METRIC.DAYS.SIGNATURE        a card        /embed/....svg        the same as a picture

KEY is the id of a read key. A link shows everybody who has it what that key may see of one metric until END, and
nothing else. Nothing is stored of a link: it ends when its day is over or its key is revoked, and a new key signs none
of the old ones.
"""

from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from hmac import compare_digest

from itsdangerous import Signer

from dither_aggregator.analysis.reading import Window
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.document_kinds import READ, Key
from dither_aggregator.web.addresses import EMBED
from dither_shared.wire.reading import Problem

DAYS_MAX = 366
"""Days until a link ends, at most."""
FRAME = '<iframe src="{}" title="{}" width="420" height="260"></iframe>'
"""The HTML by which a page of another site shows a link's card, of its address and title, both escaped."""


@dataclass(frozen=True)
class EmbedLink:
    """One metric, and the days that are shown of it."""

    metric: str
    end: date
    """The last day on which it shows anything."""
    days: int
    """So many days that end with the last sealed one."""

    def path(self, store: Store, key_id: str) -> str:
        """Return its address, signed for a read key. Raises StoreError for what cannot be a link."""
        key = store.keys.active(key_id, (READ,))
        if key is None:
            raise StoreError(f"{key_id} is no read key that is in use; `dither keys list` shows all")
        if not store.plans(self.metric):
            raise StoreError(f"there is no metric {self.metric!r}")
        ahead = (self.end - store.today()).days
        if not 0 <= ahead <= DAYS_MAX:
            raise StoreError(f"a link ends between today and {DAYS_MAX} days from now, got {self.end}")
        named = f"{key.id}.{self.end}.{self.metric}.{self.days}"
        return EMBED + _signer(store, key).sign(named).decode("ascii")

    @classmethod
    def read(cls, store: Store, signed: str) -> "EmbedLink":
        """Return what a signed text says; raise Problem where it is none, or shows nothing any more."""
        key = store.keys.active(signed.partition(".")[0], (READ,))
        # The whole text is compared: the last character of base64 has bits that are of no byte.
        named = signed.rpartition(".")[0]
        if key is None or not compare_digest(_signer(store, key).sign(named), signed.encode("utf-8")):
            raise Problem("link-refused", "this link was changed, or the key behind it was revoked")
        _, end, metric, days, _ = signed.split(".")
        link = cls(metric, date.fromisoformat(end), int(days))
        if store.today() > link.end:
            raise Problem("link-refused", f"this link ended on {link.end}")
        return link

    def window(self, store: Store) -> Window:
        """Return the days that it shows today."""
        return Window.ending(store.sealed(), self.days)


def _signer(store: Store, key: Key) -> Signer:
    """Return what signs the links of one key: who has an old copy of the store can sign none of a newer key."""
    secret = store.signing_secret(b"embed " + key.digest)
    return Signer(secret, salt=b"dither embed", digest_method=sha256, sep=".")
