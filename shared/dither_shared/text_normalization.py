"""Texts as answers and as values: each has one form on every device, and no character that nobody sees.

The form is NFC of Unicode 14. A character that Unicode 14 does not have is left as it is, whatever a later version and
the Python that runs make of it: it is a character of its own that joins no other. The text between such characters is
composed as in Unicode 14, since no later version changes that (Unicode Standard Annex 15, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise

JOINERS = "\u200c\u200d"
_VARIANTS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
UNSEEN = (
    "\0-\x1f\x7f-\x9f\u2028\u2029"  # controls, and other ends of lines
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # what is ignored by default
    "\u2800\ufff9-\ufffb\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff"  # blank or private
)
"""Characters, as those of a set, that show nothing, turn others round, end a line or are private: the same for ever."""
_WIDE = f"[^\0-\x7f\\s{UNSEEN}]"
COMPOSED_MAX = 4
"""The most characters that NFC makes one of."""
_FORMED_MAX = 1_200
"""A longer text is left as it is. In its form it has more than 300 characters, and so is too long for any use; marks in
a row are put in order in a time that grows with their square."""


def normal(text: str) -> str:
    """Return a text in the form in which it is told apart from others: NFC of Unicode 14."""
    return text if text.isascii() or len(text) > _FORMED_MAX else _in_parts(text, _compose)


def folded(text: str) -> str:
    """Return a normal text without the difference of capitals, as Unicode 14 folds them, in NFC."""
    return text.casefold() if text.isascii() else normal(_in_parts(text, str.casefold))


# Compiled when a text beyond ASCII comes: that takes longer than all else that an import does here.


@cache
def hidden() -> re.Pattern[str]:
    """Return what finds characters that nobody sees."""
    return re.compile(f"[{UNSEEN}]")


@cache
def held() -> re.Pattern[str]:
    """Return what finds joiners, and choices of a form, wherever they are."""
    return re.compile(f"[{JOINERS}{_VARIANTS}]")


@cache
def ends_or_controls() -> re.Pattern[str]:
    """Return what finds controls and ends of lines."""
    return re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@cache
def joined() -> re.Pattern[str]:
    """Return what finds a joiner between characters beyond ASCII, or one choice of a form after one or after a key's.

    Persian, Mongolian, Indian languages, Chinese names and emoji are written with them.
    """
    return re.compile(
        f"(?:(?<={_WIDE})|(?<={_WIDE}[{_VARIANTS}]))[{JOINERS}](?={_WIDE})"
        f"|(?<={_WIDE})[{_VARIANTS}]|(?<=[0-9#*])[\ufe0e\ufe0f]"
    )


def unseen(text: str) -> str:
    """Return the first character of a normal text that nobody sees, such as "U+202E"; "" of most texts.

    Joiners and choices of a form are taken as part of the characters that they belong to.
    """
    if text.isascii() and text.isprintable():
        return ""
    found = hidden().search(joined().sub("", text))
    return f"U+{ord(found[0]):04X}" if found else ""


# For logs and terminals: `harmless` has the rest.


def is_visible(text: str) -> bool:
    """Tell whether each character of a text can be seen as what it is: none controls, turns round or is private."""
    return _is_plain(text) or all(map(_is_seen, joined().sub("", text)))


def visible(text: str, keep: str = "") -> str:
    r"""Return a text whose characters can all be seen: others are escapes such as \u{202e}, but for those to `keep`."""
    if _is_plain(text):  # nearly every text is
        return text
    shown = "".join(one if _is_seen(one) or one in keep or held().match(one) else _escape(one) for one in text)
    fitting = {found.start() for found in joined().finditer(shown)}  # beside what is seen, not what was
    return "".join(
        _escape(one) if held().match(one) and one not in keep and place not in fitting else one
        for place, one in enumerate(shown)
    )


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _is_seen(character: str) -> bool:
    import unicodedata  # only for a character that may not be seen

    return _is_plain(character) or unicodedata.category(character) == "Zs"


def _is_plain(text: str) -> bool:
    return text.isprintable() and (text.isascii() or not hidden().search(text))


def _compose(text: str) -> str:
    import unicodedata  # only beyond ASCII

    return unicodedata.normalize("NFC", text)


def _in_parts(text: str, form: Callable[[str], str]) -> str:
    """Return a text of which the parts between characters that Unicode 14 does not have are formed."""
    return "".join(part if place % 2 else form(part) for place, part in enumerate(newer().split(text)))


@cache
def newer() -> re.Pattern[str]:
    """Return what finds characters that Unicode 14 does not have."""
    from base64 import b85decode  # only beyond ASCII
    from zlib import decompress

    ends, length, shift = [0], 0, 0
    for byte in decompress(b85decode(_RUNS)):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            ends.append(ends[-1] + length)
            length = shift = 0
    runs = list(pairwise(ends))[1::2]
    return re.compile("([" + "".join(f"{chr(first)}-{chr(after - 1)}" for first, after in runs) + "]+)")


_RUNS = (
    "c-mD|OK4qH6lLwR&-dPUZ(j0}_wrueCncXYU(>Wnnnp=!8dI!AskR2C6l^W%z)5Ceks@|rEsCO0u?{Q_{Y=_sV3DGBPz49IC{(E;I8kvV6-3?V"
    "g^J#L&pn@g_S*ZbyY{_p$gl-a!b=K6w3QTQU5!n0hOj`#vYj+VIr<1lbQ5HL1{@LfK%5klmoYmqK~t~z8s4x`yv0e&Tq#%vY%wT!C~Vj@1sN+s"
    "&Xig!<2$&~7IBqTZQRa4FapA|86YKqDrFs4#DJ_@7sR`a4vOe(DWVcnus!Yd5b-uFhQud;3ejU4G2afVO5dp}k{ig%HX~7-38d0_t`EkT8Wnk$"
    "Nz2<%Aa1Q-fQK=F9EHKp+B@ivh#je9+9Iw0-&u|w^4?7?RW%1Cg}1a?wLQM#OKD7l(!&%?Fjcc^NA+@OBIT5!Mo1@PTs4WhhjyV(iR{U!Id#99"
    "#F|@BxmvKJl(<p-It%KMG>46=N!ul}j10Oca()ac)lg9Vd4GNy{D$sLx?jtvg>OlZx09c<lvTXN|L+r<s#r~Lpqla`4$^Twio<v)oy0FcLe2V{"
    "RJsIrP3VmbRCcOh=G?MN&05k>`;l-zW_>1n9k28S5gM6xgatk!2R?r&E%Oxrx<pS7*;MN)BD+yH&vtyIXvU&7Vy4jrW{p#_jLT4M5c&QB6Evl$"
    "id_^$*`{Z-;&Jte91@cgCs9{Zc^?n>h91=o401Md4ia>L2Y9pFmZU;Y6k4*;@4iUBC%B5i2>c!q3C2WcpfXmRze_^sepS<0oZ}L0m6?;zRwu>5"
    "db`*f=G4!qI@NU5a%vygJ3C#Nwi7PAOHBb(MEf_pk)G;MU#aZ(OHxasz+M~7c67R7e*~qZ6JxvDVv&3jvr`Ad|1AfESPoI_+KNQ=i+BvWu_6&L"
    "LqnVPB*7HA=1rKXQO@OcEF3+MI-$~ub3^Jd^<ml31SPc<cc8HMl$66bvQSqoiIDA$F~(FR-@9Op^n=oj4Hu~QB9Lz_ylJ0!8anv|pO+plyzk(z"
    "Hm~yf?sc|J1bz^~G{}VI5G3Dj-SvTf^w@p8!xk5HLfP#}cf*hPpZ0M3H1E*3DzZDRp6`507nHYw+|7XrD*LsC-w}rC3c8oiqLd!;y{GUn?u|c^"
    "_?tm03|Z`wVsg^=30oo=(ZY42^F)_*u91J~n%|4DNNwW2!nhIvGJQ<V;=IN!5g<p!;8Re?mVGRySIpAByRXP{Es9K@Amdo*8y#Yaw%6}maTbrl"
    "?F|7%tt64+HabINd^F9a;ByRy_b^v4jIo!>GH3C%)g7v!*3wlg#hs@-Csc2C4H3t6N;A?*E9>hj(Iy1rob|5)vxDIUck2skt+(uVpp)a-hx2b&"
    "&hZb)wV?~&jG}SmIsAr~|5ShdtthsC0N>h={{"
)
"""How many code points Unicode 14 has assigned from 0 on, then how many it has not, and so on to the last: integers in
seven bits a byte, lowest first, zlib, base 85."""
