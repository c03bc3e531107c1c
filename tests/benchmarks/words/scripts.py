"""`make bench ARGS=scripts`: words found in each script, and names of packages and sites, beside English.

Behind the listed sites and packages come made-up ones with numbers, whose common beginning three devices in five have:
a search goes on with it, so a second world of each has as many different names behind them, made of the words of
Python's library.

A table of names has brands and words as lists of brands and of English have them, some of these names among them. So
there are worlds of those names alone whose own part, such as com.NAME or NAME.com, is none of the table's words. They
are not unseen: more than half of these sites, and a seventh of the apps, are among the names that the table's counts
are of.

Words of languages are those of the package wordfreq, if it is installed: `pip install wordfreq`. It is CC BY-SA 4.0, so
no table is made of it, and none of it is kept here. Its words are ranked; all devices have words by Zipf's law.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from importlib import import_module

import numpy as np

from dither_aggregator.analysis.words import Numbers
from dither_shared.mechanisms import PGR, choose
from dither_shared.words.alphabets import alphabet_of, load
from dither_shared.words.code import BUCKETS, LAYOUTS, Groups, Layout
from tests.benchmarks.words import ours
from tests.benchmarks.words.comparing import Runs, named_in, timed
from tests.benchmarks.words.vocabulary import WORDS, devices, vocabulary

DEVICES = 1_000_000
SEEDS = 5
EPSILONS = ("2", "4")
WANTED = 0.8
"""At least this part of the words that English has found."""
PACKAGES = """
com.whatsapp com.instagram.android com.facebook.katana com.google.android.youtube com.android.chrome
com.google.android.gm com.google.android.apps.maps com.spotify.music com.netflix.mediaclient com.twitter.android
com.snapchat.android org.telegram.messenger com.facebook.orca com.zhiliaoapp.musically
com.amazon.mShop.android.shopping com.google.android.apps.photos com.microsoft.teams com.linkedin.android
com.pinterest com.ubercab com.skype.raider com.discord com.viber.voip com.reddit.frontpage org.mozilla.firefox
com.duolingo com.booking com.airbnb.android com.paypal.android.p2pmobile com.ebay.mobile com.shazam.android
us.zoom.videomeetings com.king.candycrushsaga com.supercell.clashofclans com.roblox.client com.mojang.minecraftpe
com.dts.freefireth com.tencent.ig com.google.android.googlequicksearchbox com.google.android.apps.docs
com.google.android.calendar com.google.android.apps.messaging com.microsoft.office.outlook com.microsoft.office.word
com.adobe.reader com.dropbox.android org.videolan.vlc com.mxtech.videoplayer.ad com.opera.browser com.brave.browser
com.truecaller com.imo.android.imoim jp.naver.line.android com.tencent.mm com.tinder com.soundcloud.android com.waze
com.yahoo.mobile.client.android.mail com.google.android.keep com.google.android.apps.translate
com.google.android.music com.google.android.apps.tachyon tv.twitch.android.app com.wish.tiktok
com.alibaba.aliexpresshd com.grabtaxi.passenger com.myntra.android in.amazon.mShop.android.shopping com.phonepe.app
net.one97.paytm com.flipkart.android com.evernote com.trello com.slack org.wikipedia com.strava
com.fitbit.FitbitMobile com.nike.plusgps com.zhihu.android org.thoughtcrime.securesms
"""
SITES = """
google.com youtube.com facebook.com instagram.com wikipedia.org x.com whatsapp.com reddit.com yahoo.com amazon.com
tiktok.com netflix.com bing.com linkedin.com office.com twitch.tv pinterest.com microsoft.com github.com openai.com
weather.com ebay.com quora.com duckduckgo.com yandex.ru vk.com mail.ru baidu.com qq.com stackoverflow.com imdb.com
cnn.com bbc.co.uk nytimes.com theguardian.com spotify.com roblox.com apple.com paypal.com zoom.us discord.com
fandom.com globo.com naver.com etsy.com walmart.com booking.com spiegel.de web.de gmx.net t-online.de amazon.de
lemonde.fr leboncoin.fr orange.fr elpais.com marca.com repubblica.it allegro.pl onet.pl ok.ru avito.ru ozon.ru
hurriyet.com.tr rakuten.co.jp news.google.com mail.google.com docs.google.com en.wikipedia.org medium.com
wordpress.com blogspot.com tumblr.com archive.org npmjs.com pypi.org mozilla.org debian.org python.org arxiv.org
nature.com nih.gov indeed.com espn.com foxnews.com dailymail.co.uk shopify.com adobe.com dropbox.com salesforce.com
slack.com airbnb.com tripadvisor.com expedia.com aliexpress.com temu.com shein.com
"""


def worlds() -> dict[str, tuple[str, Callable[[], Sequence[str]]]]:
    """Return each world by its name: its alphabet, and what makes its words, the most frequent first."""
    languages = {
        "Russian": ("cyrillic", "ru"), "Ukrainian": ("cyrillic", "uk"), "Greek": ("greek", "el"),
        "Arabic": ("arabic", "ar"), "Persian": ("arabic", "fa"), "Hebrew": ("hebrew", "he"),
        "Hindi": ("devanagari", "hi"),
        "Chinese": ("cjk", "zh"), "Japanese": ("kana", "ja"), "Korean": ("hangul", "ko"), "German": ("latin", "de"),
        "Turkish": ("latin", "tr"), "Russian in any": ("any", "ru"), "Chinese in any": ("any", "zh"),
    }  # fmt: skip
    return {
        "English, of Python": ("", vocabulary),
        "names in programs": ("identifier", vocabulary),
        "sites": ("site", partial(_filled, SITES.split(), "site{}.example")),
        "packages": ("package", partial(_filled, PACKAGES.split(), "com.example.app{}")),
        "sites before many others": ("site", partial(_before, SITES.split(), "{}.com")),
        "packages before many others": ("package", partial(_before, PACKAGES.split(), "com.{}.android")),
        "sites not listed": ("site", lambda: _before(unlisted("site", SITES.split()), "{}.com")),
        "packages not listed": ("package", lambda: _before(unlisted("package", PACKAGES.split()), "com.{}.android")),
        "English": ("", partial(_spoken, "en")),
        **{name: (alphabet, partial(_spoken, language)) for name, (alphabet, language) in languages.items()},
    }


def run(names: Sequence[str] = (), seeds: int = SEEDS) -> None:
    """Print how many words are found in each world."""
    print(
        f"{DEVICES:,} devices, zipf 1, {seeds} runs each: words found, recall of the first 10 and 20, runs that name a"
    )
    print("false word, CPU seconds of the search")
    for name, (alphabet, words) in worlds().items():
        if names and name not in names:
            continue
        try:
            listed = words()
        except ModuleNotFoundError:
            print(f"{name:27} needs the package wordfreq")
            continue
        digest, levels, weights = load(alphabet) if alphabet else ("", *_of(LAYOUTS["short"]))
        coded = Groups("", levels, alphabet_of(digest) if digest else None)
        typed = [word.encode() for word in listed]
        numbers = [np.array([coded.number(each, group) for each in typed], np.uint64) for group in range(coded.count)]
        for epsilon in EPSILONS:
            runs = Runs()
            for seed in range(seeds):
                _run(epsilon, seed, Groups(f"benchmark_{seed}", levels, coded.alphabet), weights, numbers, listed, runs)
            print(f"{name:27} {alphabet or 'none':11} eps {epsilon} {runs}", flush=True)


def _of(layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return layout.levels, layout.weights


def _run(
    epsilon: str,
    seed: int,
    groups: Groups,
    weights: Sequence[int],
    numbers: Sequence[Numbers],
    words: Sequence[str],
    runs: Runs,
) -> None:
    mechanism = choose(BUCKETS, Decimal(epsilon), name=PGR.name)
    assert isinstance(mechanism, PGR)
    rng = np.random.default_rng(seed)
    held = devices(DEVICES, 1.0, rng)
    tallies = ours.draw_rows(mechanism, groups, weights, held, rng, lambda levels, group: numbers[group])
    found, seconds = timed(lambda: ours.find(mechanism, groups, tallies))
    runs.add(named_in(found), {word: rank for rank, word in enumerate(words)}, seconds)


def _spoken(language: str) -> Sequence[str]:
    """Return the words of a language, without numbers; where there are fewer than WORDS, made-up ones after them."""
    listed = import_module("wordfreq").top_n_list(language, 2 * WORDS)
    words = [word for word in listed if not any(character.isdigit() for character in word)]
    return _filled(words, f"{words[0]}{{}}")


def unlisted(alphabet: str, names: Sequence[str]) -> Sequence[str]:
    """Return those of the names whose own part, which says whose they are, is no word of an alphabet's table."""
    (script,) = alphabet_of(load(alphabet)[0]).scripts
    return [name for name in names if len(own := _own(alphabet, name)) == 1 or own not in script.symbols]


def _own(alphabet: str, name: str) -> str:
    labels = name.split(".")
    return labels[1] if alphabet == "package" else max(labels[:-1], key=len)


def _before(listed: Sequence[str], made_up: str) -> Sequence[str]:
    """Return WORDS names: these, and words of the library in this form, those that are one in small letters once."""
    words = dict.fromkeys(re.sub(r"[^a-z0-9]", "", word.lower()) for word in vocabulary())
    names = list(dict.fromkeys([*listed, *(made_up.format(word) for word in words if word)]))
    return _filled(names, made_up.format("another{}"))


def _filled(words: Sequence[str], made_up: str) -> Sequence[str]:
    """Return WORDS words: these, and made-up ones, each with a number."""
    return [*words[:WORDS], *(made_up.format(number) for number in range(WORDS - len(words)))]
