"""Published lists, which a registry names in the place of its own: "iso-countries@" and the first digits of a digest.

NAME.txt has a value a line. A digest is SHA-256 of the file, so another edition is another name, and no plan changes by
an upgrade. dither-aggregator brings these: an app starts from the compiled registry, which has the values.
"""

from dither_shared.errors import InvalidParameter

LISTS = (
    *("bcp47-languages", "browser-versions", "iana-media-types", "iana-time-zones", "iso-countries"),
    "public-suffixes",
)
DIGITS = 8
"""So many digits of a digest are needed at least."""


def published(asked: str) -> tuple[str, ...]:
    """Return the values of NAME@DIGEST; raise InvalidParameter, with the name that would do, for any other."""
    from hashlib import sha256
    from importlib.resources import files

    name, _, digest = asked.partition("@")
    if name not in LISTS:
        raise InvalidParameter(f"there must be such a list: {', '.join(LISTS)}")
    text = files("dither_shared.published").joinpath(f"{name}.txt").read_bytes()
    own = sha256(text).hexdigest()
    if len(digest) < DIGITS or not own.startswith(digest):
        raise InvalidParameter(
            f'of {name} this dither has the edition "{name}@{own[:DIGITS]}". To keep another, name a file of its '
            "values, of which metrics.json has a copy"
        )
    return tuple(text.decode("utf-8").splitlines())
