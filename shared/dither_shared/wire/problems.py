"""The refusals of the aggregator, as problem documents (RFC 9457)."""

from dither_shared.errors import DitherError
from dither_shared.wire import PROBLEM_PREFIX

PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The request is not what this address takes"),
    "key-missing": (401, "A key is needed"),
    "key-wrong": (401, "The key is not one that this aggregator knows"),
    "key-scope": (403, "The key is not for this"),
    "origin-not-allowed": (403, "No page of this origin may send reports"),
    "link-refused": (403, "This link shows nothing"),
    "not-found": (404, "There is nothing at this address"),
    "method-not-allowed": (405, "This address does not take this method"),
    "upload-conflict": (409, "This id came before with another body"),
    "expired": (410, "Every group's metric has expired"),
    "retired": (410, "Every group's plan is retired"),
    "gone": (410, "This is no longer kept"),
    "length-required": (411, "The request must state its length"),
    "too-large": (413, "The request is too large"),
    "unsupported-media-type": (415, "The body must be application/json, as it is or in gzip"),
    "host-not-allowed": (421, "Nobody may read under this name"),
    "refused": (422, "Every group was refused"),
    "not-done": (422, "The change cannot be made"),
    "headers-too-large": (431, "The request's headers are too large"),
    "too-many": (429, "Too many requests came; send the same bytes again later"),
    "failed": (500, "A fault of the aggregator's own kept it from answering"),
    "bad-tally": (500, "The stored counts are not those of any reports"),
    "backlog-full": (503, "Too many uploads are not counted yet; send the same bytes again later"),
    "disk-full": (507, "The store has no room to spare; send the same bytes again later"),
    "being-computed": (503, "This is being computed; ask again soon"),
    "not-computed": (503, "This could not be computed"),
    "read-failed": (503, "This cannot be shown now; ask again in a minute"),
    "key-waiting": (503, "This key waits for the app's next one; send the same bytes again later"),
    "unavailable": (503, "The aggregator cannot store reports now; send the same bytes again later"),
}
"""Every answer that is not a success: the stable end of its `type`, its status, its title."""


class Problem(DitherError):
    """A request that is refused as a whole. `slug` is a key of PROBLEMS, `detail` a sentence for people."""

    def __init__(self, slug: str, detail: str, **extra: object) -> None:
        super().__init__(detail)
        self.slug = slug
        self.status, self.title = PROBLEMS[slug]
        self.detail = detail
        self.extra = extra

    def to_document(self) -> dict[str, object]:
        """Return the problem document (RFC 9457)."""
        return {
            "type": PROBLEM_PREFIX + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
        }
