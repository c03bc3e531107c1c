"""The texts of which the tables of alphabets are made, each with a weight. README.md names them and their licences."""

import bz2
import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from math import log2
from pathlib import Path

Texts = Iterator[tuple[str, float]]

LANGUAGES: Mapping[str, Mapping[str, float]] = {
    "latin": {
        "en": 3.0, "de": 2.0, "fr": 2.0, "es": 2.0, "pt": 2.0, "it": 1.0, "nl": 1.0, "sv": 1.0, "da": 1.0, "no": 1.0,
        "fi": 1.0, "pl": 1.0, "cs": 1.0, "sk": 1.0, "hu": 1.0, "ro": 1.0, "hr": 1.0, "sl": 1.0, "tr": 1.0, "vi": 1.0,
        "id": 1.0, "et": 1.0, "lv": 1.0, "lt": 1.0, "ca": 1.0,
    },
    "cyrillic": {"ru": 3.0, "uk": 2.0, "bg": 1.0, "sr": 1.0, "kk": 1.0, "mk": 0.5, "be": 0.5, "ky": 0.5, "mn": 0.5},
    "greek": {"el": 1.0},
    "arabic": {"ar": 2.0, "fa": 1.0, "ur": 1.0},
    "hebrew": {"he": 1.0},
    "devanagari": {"hi": 2.0, "mr": 1.0, "ne": 1.0},
    "cjk": {"zh": 1.0, "zh-Hant": 0.5},
    "kana": {"ja": 1.0},
    "hangul": {"ko": 1.0},
}  # fmt: skip
"""CLDR's languages in each alphabet, and how much each of their texts counts."""
_EDGES = ".,;:!?()[]{}\"'«»“”„\u2018\u2019—…、。"
_ANDROID = re.split(
    r"\s+",
    """com.android.bluetooth com.android.browser com.android.calculator2 com.android.calendar com.android.camera2
com.android.cellbroadcastreceiver com.android.certinstaller com.android.contacts com.android.deskclock
com.android.development com.android.dialer com.android.documentsui com.android.email com.android.gallery3d
com.android.htmlviewer com.android.inputmethod.latin com.android.keychain com.android.launcher3
com.android.managedprovisioning com.android.messaging com.android.mms.service com.android.music com.android.nfc
com.android.packageinstaller com.android.permissioncontroller com.android.phone com.android.printspooler
com.android.providers.calendar com.android.providers.contacts com.android.providers.downloads
com.android.providers.media com.android.providers.settings com.android.providers.telephony com.android.quicksearchbox
com.android.server.telecom com.android.settings com.android.shell com.android.stk com.android.systemui
com.android.vpndialogs com.android.wallpaper com.android.webview org.chromium.webview_shell""",
)


def texts_of(alphabet: str, folder: Path) -> Texts:
    """Yield the texts for an alphabet. `folder` has the sources, unpacked, as README.md says."""
    if alphabet == "domain":
        yield from _hosts(folder)
    elif alphabet == "identifier":
        yield from _identifiers(folder)
    elif alphabet == "site":
        yield from _sites(folder)
    elif alphabet == "package":
        yield from _apps(folder)
    else:
        for language, weight in LANGUAGES[alphabet].items():
            yield from ((unicodedata.normalize("NFC", text), weight * own) for text, own in _cldr(folder, language))
        if alphabet == "cjk":
            yield from _characters(folder)


def is_trained_on(name: str) -> bool:
    """Tell whether a name is one of the half that tables are made of; the other half is for trying them."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def _cldr(folder: Path, language: str) -> Texts:
    """Yield the names of languages, countries and scripts, and all words of these and of what emoji are called."""
    names: list[str] = []
    for file, kind in (("languages", "languages"), ("territories", "territories"), ("scripts", "scripts")):
        document = _json(folder / "cldr-localenames-full" / "main" / language / f"{file}.json")
        listed = document["main"][language]["localeDisplayNames"][kind]
        names += (name for code, name in listed.items() if name != code and "-alt-" not in code)
    document = _json(folder / "cldr-annotations-full" / "annotations" / language / "annotations.json")
    called = [text for each in document["annotations"]["annotations"].values() for text in each.get("default", ())]
    words = Counter(word.strip(_EDGES) for text in (*names, *called) for word in text.split())
    yield from ((name, 0.5) for name in names)
    yield from ((word, 1 + log2(count)) for word, count in words.items() if word)


def _characters(folder: Path) -> Texts:
    """Yield the characters of Chinese, by how often each is used as Xiandai Hanyu Pinlu Cidian counts it."""
    for line in bz2.decompress((folder / "Unihan_Readings.txt.bz2").read_bytes()).decode().splitlines():
        if "\tkHanyuPinlu\t" in line and line.startswith("U+"):
            point, _, counts = line.split("\t")
            yield chr(int(point[2:], 16)), sum(map(int, re.findall(r"\((\d+)\)", counts))) / 100


def _packages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each package of the index that is trained on, and the host of its home page or ""."""
    for stanza in (folder / "Packages").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Homepage): (.*)$", stanza, re.MULTILINE))
        name = fields.get("Package", "")
        host = re.sub(r"^\w+://|[/:?#].*$", "", fields.get("Homepage", "")).lower()
        if name and re.fullmatch(r"[a-z0-9.-]*", host):
            yield name, host


def _hosts(folder: Path) -> Texts:
    """Yield hosts, their last two labels, which people name more often, and names as half of all sites have them."""
    hosts = Counter(host for _, host in _packages(folder) if host and is_trained_on(host))
    sites = Counter(".".join(host.split(".")[-2:]) for host in hosts)
    for site, count in sites.items():
        yield site, 1 + log2(count)
        yield f"{site.partition('.')[0]}.com", 1 + log2(count)
    yield from ((host, 0.2) for host in hosts)


def _identifiers(folder: Path) -> Texts:
    """Yield names of packages, such names below their hosts' turned round, Android's own, and words that are joined."""
    yield from ((name, 60.0) for name in _ANDROID)
    for name, host in _packages(folder):
        if is_trained_on(name):
            yield name, 0.3
            if host and re.fullmatch(r"[a-z0-9]{2,12}", name):
                yield ".".join([*reversed(host.split(".")[-2:]), name]), 1.0
    for text, _ in _cldr(folder, "en"):
        words = re.findall(r"[a-z]+", text.lower())
        if words and len(text) < 20:
            yield "_".join(words), 3.0
            yield "".join([words[0], *map(str.capitalize, words[1:])]), 3.0


APPS = Path(__file__).with_name("apps.txt")
"""Names of apps, of Android's own parts, and of those that makers of telephones bring."""
_SECOND = frozenset({"co", "com", "org", "net", "ac", "gov"})
"""Labels below which a country has its sites."""
PROJECTS_MAX = 20
"""A site with more hosts than these gives its projects a host each: their names are no sites'."""


def _site_of(host: str) -> str:
    """Return what is registered of a host: its last two labels, or three below a country's second one."""
    labels = host.split(".")
    return ".".join(labels[-3 if len(labels) > 2 and labels[-2] in _SECOND else -2 :])


def _brands(folder: Path) -> tuple[Counter[str], list[str]]:
    """Return the hosts at which brands of simple-icons show their signs, and the brands' names, those of logos too."""
    icons = json.loads((folder / "simple-icons" / "_data" / "simple-icons.json").read_text(encoding="utf-8"))["icons"]
    logos = json.loads((folder / "iconify-logos" / "icons.json").read_text(encoding="utf-8"))["icons"]
    hosts: Counter[str] = Counter()
    for icon in icons:
        shown = {re.sub(r"^\w+://|[/:?#].*$", "", icon.get(key, "")).lower() for key in ("source", "guidelines")}
        hosts.update(host for host in sorted(shown) if re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", host))
    named = {icon["title"] for icon in icons}
    for logo in logos:
        of = re.sub(r"-(icon|wordmark|square|badge)$", "", logo)
        named |= {of, of.partition("-")[0]}
    titles = {re.sub(r"[^a-z0-9]", "", name.lower()) for name in named}
    return hosts, sorted(title for title in titles if 1 < len(title) < 16 and title[0].isalpha())


def _homes(folder: Path) -> Counter[str]:
    """Return the sites of packages' home pages, and how many hosts each has; none that has many for its projects."""
    sites = Counter(map(_site_of, sorted({host for _, host in _packages(folder) if "." in host})))
    return Counter({site: count for site, count in sites.items() if count <= PROJECTS_MAX})


WORD_MIN, WORD_MAX = 4, 14
"""Characters of a word of a table."""
_ENGLISH = {10: 1.5, 20: 0.4}
"""SCOWL's sizes, and how much each of their words counts: the smaller, the more usual are its words."""
_BRAND, _PART, _PARTS_MIN = 0.7, 0.2, 3
"""The weight of a brand. That of a part of packages' names is times log2 of how many have it, at least so many."""


def words_of(folder: Path) -> Mapping[str, float]:
    """Return the words of which names of sites and apps are made, with their weights: of English, brands, programs."""
    words: dict[str, float] = {}
    for size, weight in _ENGLISH.items():
        for kind in ("english", "american"):
            listed = (folder / "scowl" / f"{kind}-words.{size}").read_text(encoding="latin-1").split()
            words |= {word: weight for word in listed if word not in words}
    parts = Counter(part for name, _ in _packages(folder) for part in set(re.findall(r"[a-z]{4,12}", name)))
    for part, count in parts.items():
        if count >= _PARTS_MIN:
            words[part] = max(words.get(part, 0.0), _PART * log2(count))
    for brand in _brands(folder)[1]:
        words[brand] = words.get(brand, 0.0) + _BRAND
    known = re.compile(f"[a-z0-9]{{{WORD_MIN},{WORD_MAX}}}")
    return {word: weight for word, weight in words.items() if known.fullmatch(word)}


def _sites(folder: Path) -> Texts:
    """Yield sites of brands and of packages, hosts below them, and names as half of all sites have them."""
    hosts, titles = _brands(folder)
    sites: Counter[str] = Counter()
    for host, count in hosts.items():
        sites[_site_of(host)] += count
    yield from ((site, 2.0 + min(log2(count), 3.0)) for site, count in sites.items())
    yield from ((host, 0.4) for host in hosts if host not in sites)
    yield from ((f"{title}.com", 0.7) for title in titles if f"{title}.com" not in sites)
    for site, count in _homes(folder).items():
        yield site, 0.3 * (1 + log2(count))
        yield f"{site.partition('.')[0]}.com", 0.3 * (1 + log2(count))


def _apps(folder: Path) -> Texts:
    """Yield names of apps, brands and sites turned round as apps have them, and packages below their hosts'."""
    yield from ((name, 12.0) for name in APPS.read_text(encoding="utf-8").split())
    hosts, titles = _brands(folder)
    for title in titles:
        yield from ((f"com.{title}{end}", weight) for end, weight in _ENDS.items())
    for site in sorted({_site_of(host) for host in hosts}):
        turned = ".".join(reversed(site.split(".")))
        yield turned, 0.6
        yield f"{turned}.android", 0.4
    homes = _homes(folder)
    for name, host in _packages(folder):
        if re.fullmatch(r"[a-z0-9]{2,12}", name) and _site_of(host) in homes:
            yield ".".join([*reversed(_site_of(host).split(".")), name]), 0.25


_ENDS = {"": 1.2, ".android": 1.0, ".app": 0.2, ".mobile": 0.2, ".client": 0.1}
"""Names of apps below a brand's, and how much each counts."""


def _json(path: Path) -> dict[str, dict[str, dict[str, dict[str, dict[str, str]]]]]:
    document: dict[str, dict[str, dict[str, dict[str, dict[str, str]]]]] = json.loads(path.read_text(encoding="utf-8"))
    return document
