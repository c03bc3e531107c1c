"""Pages in a real Chromium: one tab, and what is looked at on every page and in every state of it.

A visit loads a page once. Its tab then changes width and scheme, which load nothing: a page answers to both by its
style sheet alone. Axe takes as long as loading and all other looks together, so `make test` lets it see each page whole
once, and leaves to a measurement of all texts in all looks what else depends on the scheme.
"""

import gzip
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, Request

from tests.support.sites import Site
from tests.support.soaking import SOAK, thinned

LOOKS = ((1280, "light"), (1280, "dark"), (390, "dark"), (390, "light"))
"""Desktop and phone, light and dark, each beside a look that differs in one of both: a change lays a page out anew."""
WIDTHS = (320, 390, 1280, 2560)
WITHIN_MS = 200_000
"""A page is there by then, also one that is computed beside many busy programs."""
HEIGHT, LOW = 900, 200
"""A window is so high, or low where a page is looked at in many ways: less is painted, and no style asks for it."""
BYTES_MAX, PACKED_MAX, NODES_MAX, HEIGHT_MAX = 300_000, 60_000, 5_000, 6_000
CONTRAST_MIN = 4.5
Pages = tuple[str, dict[str, str]]
"""The address of the pages, and the id of each metric's snapshot."""

BRIGHTNESS = """element => {
    const rgb = getComputedStyle(element).getPropertyValue(element.tagName == 'BODY' ? 'background-color' : 'color')
    return rgb.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765
}"""
"""How bright a text is, or the page: between 0 and 1."""

TALL = """() => [...document.styleSheets].flatMap(sheet => [...sheet.cssRules]).map(rule => rule.cssText)
    .filter(rule => /\\d[dls]?v(h|b|min|max)\\b/.test(rule)
        || /@(media|container)[^{]*(height|block-size|ratio|orientation)/.test(rule))"""
"""The rules by which a page would look different in a window of another height."""

WIDTH = "() => document.documentElement.scrollWidth"

OVERLAPS = """() => [...document.querySelectorAll('svg')].filter(svg => !svg.ownerSVGElement).flatMap(svg => {
    const inner = ({left, right, top, bottom}) => ({left: left + 1, right: right - 1, top: top + 3, bottom: bottom - 3})
    const texts = [...svg.querySelectorAll('text')].map(each => [each.textContent, inner(each.getBoundingClientRect())])
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
    const corners = mark => [...mark.points].map(each => each.matrixTransform(mark.getScreenCTM()))
    const between = (a, b) => [...Array(41).keys()].map(k => [a.x + (b.x - a.x) * k / 40, a.y + (b.y - a.y) * k / 40])
    const crosses = (box, [x, y]) => box.left < x && x < box.right && box.top < y && y < box.bottom
    const lies = mark => {
        if (mark.points) {
            const at = corners(mark), on = at.slice(1).flatMap((end, place) => between(at[place], end))
            const back = mark.getScreenCTM().inverse()
            const fills = mark.matches('polygon'), at_point = (x, y) => new DOMPoint(x, y).matrixTransform(back)
            const held = (x, y) => fills && mark.isPointInFill(at_point(x, y))
            return box => on.some(point => crosses(box, point))
                || held(box.left, box.top) || held(box.right, box.bottom)
        }
        const at = mark.getBoundingClientRect()
        return box => meet(box, at)
    }
    const marks = [...svg.querySelectorAll('line, rect, circle, polyline, polygon')]
        .filter(each => !each.closest('.crosshair'))
        .map(each => [`<${each.tagName} ${each.className.baseVal}>`, lies(each)])
    return texts.flatMap(([one, a], place) => [
        ...texts.slice(place + 1).filter(([_, b]) => meet(a, b)).map(([two, _]) => one + ' | ' + two),
        ...new Set(marks.filter(([_, lies]) => lies(a)).map(([two, _]) => one + ' | ' + two)),
    ])
})"""
"""Labels of a plot that lie on each other, or on a mark, a band or a line of an axis: each with what it lies on."""

FAINT = """least => {
    const parts = text => text.match(/[\\d.]+/g).map(Number)
    const light = text => parts(text).slice(0, 3).map(c => c / 255)
        .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0)
    const seen = new Map()
    const behind = element => {
        if (!seen.has(element)) {
            const color = getComputedStyle(element).backgroundColor
            seen.set(element, element.parentElement && parts(color)[3] === 0 ? behind(element.parentElement) : color)
        }
        return seen.get(element)
    }
    const told = element => element.matches('input, select, textarea')
        || [...element.childNodes].some(node => node.nodeType == 3 && node.textContent.trim())
    return [...document.querySelectorAll('body *')].filter(each => told(each) && each.checkVisibility()
        && !each.matches('title, script, style, :disabled')).map(each => {
        const style = getComputedStyle(each)
        const both = [each instanceof SVGElement ? style.fill : style.color, behind(each)].map(light)
        return [(Math.max(...both) + .05) / (Math.min(...both) + .05), each.textContent]
    }).filter(([contrast, _]) => !(contrast >= least))
}"""
"""Texts with less contrast than so much, HTML and SVG, as WCAG measures it."""

CONTRAST = """element => {
    const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(part => {
        const share = part / 255
        return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
    })
    const light = text => rgb(text).reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0)
    const style = getComputedStyle(element)
    const own = element instanceof SVGElement && style.stroke != 'none' ? style.stroke : style.color
    const [a, b] = [light(own), light(getComputedStyle(document.body).backgroundColor)]
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
}"""
"""The contrast of an element, or of its line in a drawing, with the page."""

FLAT = """() => [...document.querySelectorAll('html, body, body *')].every(each => {
    const {width, right, bottom} = each.getBoundingClientRect()
    if (each.ownerSVGElement || !each.checkVisibility() || width <= 1 || right <= 0 || bottom <= 0) {
        return true
    }
    const style = getComputedStyle(each)
    const unmoved = ['top', 'right', 'bottom', 'left'].every(side => ['auto', '0px'].includes(style[side]))
    return (style.position == 'static' || (style.position == 'relative' && style.zIndex == 'auto' && unmoved))
        && ['Top', 'Right', 'Bottom', 'Left'].every(side => !style['margin' + side].startsWith('-'))
        && [style.float, style.transform, style.filter, style.textShadow, style.backgroundImage]
            .every(value => value == 'none')
        && [style.translate, style.scale, style.rotate].every(value => value == 'none')
        && style.opacity == 1 && style.mixBlendMode == 'normal'
        && style.color.startsWith('rgb(') && style.webkitTextFillColor == style.color
        && (style.backgroundColor.startsWith('rgb(') || style.backgroundColor == 'rgba(0, 0, 0, 0)')
})"""
"""Whether every text lies on what its element or the nearest around it is filled with, nothing dims either, and both
have a colour that nothing shines through. FAINT then sees all that axe does."""

SCROLLS = """() => [...document.querySelectorAll('*')].some(each =>
    (each.scrollWidth > each.clientWidth + 13 || each.scrollHeight > each.clientHeight + 13)
        && /auto|scroll/.test(getComputedStyle(each).overflow))"""
"""Whether anything scrolls by more than axe overlooks."""

LOOK = f"""least => {{
    const brightness = [...document.querySelectorAll('body, h1')].map({BRIGHTNESS})
    return [({WIDTH})(), ({OVERLAPS})(), ({FAINT})(least), brightness]
}}"""
"""All that is measured of a page in one look: a question to a browser takes longer than most of the answers."""

SIZE = "() => [document.querySelectorAll('*').length, document.documentElement.scrollHeight]"

GIVE_AXE = f"window.giveAxe = () => {{ {AXE_SCRIPT} }}"
"""Told to a page before axe looks at it. Half a megabyte told to each page as it begins would mostly be for nothing."""

AXE = """async options => {
    if (!window.axe) giveAxe()
    return (await axe.run(options)).violations.map(({id, help, nodes}) =>
    `${id}: ${help}` + nodes.map(each => `\n    ${each.target} ${each.html}\n        ${each.failureSummary}`).join(''))
}"""
"""The violations that axe finds. It would say more of the rules that were kept, which takes as long as finding out."""


class Tab:
    """A tab that checks share, one after the other, and what the browser complains of since a page was visited."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._heard: list[str] = []
        self._origin = ""
        self._media: dict[str, str] = {}
        page.set_default_timeout(WITHIN_MS)
        page.on("console", lambda message: self._heard.append(message.text))
        page.on("pageerror", lambda error: self._heard.append(str(error)))
        page.on("dialog", lambda dialog: self._heard.append(dialog.message))
        page.on("requestfailed", self._failed)
        page.on("request", lambda request: self._asked(request.url))

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the icon of a page that was left before it came
            self._heard.append(request.url)

    def _asked(self, url: str) -> None:
        if not url.startswith(self._origin):
            self._heard.append(url)

    @property
    def complaints(self) -> list[str]:
        """Lines that the page logged, and requests that failed or went elsewhere; not that it answered 4xx."""
        return [each for each in self._heard if "Failed to load resource" not in each]

    def visit(self, url: str, width: int = 1280, scheme: str = "light", **media: str) -> Page:
        """Load a page, as if nobody had been here before."""
        self.look(width, scheme, HEIGHT, **media)
        self.page.mouse.move(0, 0)  # where a page before had it, it would point at something of the next
        self._heard.clear()
        self._origin = url if url.startswith("file:") else "/".join(url.split("/")[:3])
        self.page.goto(url)
        return self.page

    def look(self, width: int, scheme: str = "light", height: int = HEIGHT, **media: str) -> None:
        """Change what the page that is open is looked at with."""
        size = {"width": width, "height": height}
        usual = {"media": "screen", "forced_colors": "none", "reduced_motion": "no-preference"}
        asked = {**usual, "color_scheme": scheme, **media}
        if self.page.viewport_size != size:
            self.page.set_viewport_size(size)  # type: ignore[arg-type]
        if self._media != asked:
            self.page.emulate_media(**asked)  # type: ignore[arg-type]
            self._media = asked

    def fits(self) -> bool:
        return bool(self.page.evaluate(WIDTH) <= self.width)

    @property
    def width(self) -> int:
        """The width that the page is looked at with."""
        size = self.page.viewport_size
        assert size
        return size["width"]


_shared: list[Tab] = []


def shared_tab(browser: Browser) -> Tab:
    """Return the one tab of a browser that all files share: a new one has a process to start, which compiles axe."""
    if not _shared or _shared[0].page.context.browser is not browser or _shared[0].page.is_closed():
        _shared[:] = [Tab(browser.new_context().new_page())]
    return _shared[0]


@contextmanager
def a_tab(browser: Browser, **how: Any) -> Iterator[Tab]:
    """Yield a tab in a context of its own, for what only a context can be told."""
    context = browser.new_context(**how)
    try:
        yield Tab(context.new_page())
    finally:
        context.close()


def check_axe(page: Page, *rules: str, but: Sequence[str] = ()) -> None:
    """Let axe look at the page as it is now, by these rules or by all `but` some."""
    if not page.evaluate("'giveAxe' in window"):
        page.evaluate(GIVE_AXE)
    asked = {
        "resultTypes": ["violations"],
        "rules": {rule: {"enabled": False} for rule in but},
        **({"runOnly": list(rules)} if rules else {}),
    }
    found = page.evaluate(AXE, asked)
    assert not found, "\n".join(found)


def check_looks(tab: Tab, axe: Sequence[tuple[int, str]] = thinned(LOOKS, 0)) -> None:
    """Look at the page that is open at each width and in each scheme; in a soak in both of them together.

    The width alone decides where everything lies, and the scheme alone decides colours.

    It fits, no labels lie on each other or on marks, every text stands out, and it is dark where that is asked for.
    Axe sees it in some looks, but for contrasts that FAINT has seen, and in a soak whole in all; whether what scrolls,
    if anything does, can be reached depends on the width alone.
    """
    page = tab.page
    looks = thinned(LOOKS, 0, 2)
    for width, scheme in looks:
        tab.look(width, scheme, LOW)
        across, overlaps, faint, (background, text) = page.evaluate(LOOK, CONTRAST_MIN)
        assert across <= width, scheme
        assert overlaps == []
        assert faint == []
        assert abs(background - text) > 0.7
        assert (background < 0.5) == (scheme == "dark")
        if (width, scheme) in axe:
            # For contrasts axe searches for all that lies behind a text, which takes long.
            check_axe(page, but=() if SOAK or not page.evaluate(FLAT) else ("color-contrast",))
        elif (width, scheme) == looks[-1] and page.evaluate(SCROLLS):
            check_axe(page, "scrollable-region-focusable")


def check_widths(tab: Tab, widths: Sequence[int] = WIDTHS) -> None:
    """Find that the page that is open fits into each width, and that no labels lie on each other."""
    for width in widths:
        tab.look(width, height=LOW)
        across, overlaps = tab.page.evaluate(f"[({WIDTH})(), ({OVERLAPS})()]")
        assert across <= width
        assert overlaps == []


def check_size(tab: Tab) -> None:
    """Find the page that is open small enough, at desktop width."""
    tab.look(1280)
    content = tab.page.content().encode()
    assert len(content) <= BYTES_MAX
    assert len(gzip.compress(content)) <= PACKED_MAX
    nodes, height = tab.page.evaluate(SIZE)
    assert nodes <= NODES_MAX
    assert height <= HEIGHT_MAX


def axe_of(path: str, states: Iterable[str]) -> Sequence[tuple[int, str]]:
    """Return the looks in which axe sees a state: in `make test` one, if it is the first of its kind of page."""
    firsts = {re.sub("(metrics|s)/[^/]+", r"\1", each.partition("?")[0]): each for each in reversed([*states])}
    return thinned(LOOKS, *([0] if path in firsts.values() else []))


def check_state(tab: Tab, url: str, says: str, axe: Sequence[tuple[int, str]] = thinned(LOOKS, 0)) -> None:
    """Find that a page says something, is accessible in all looks, fits every width and paper, and is small enough.

    A state that is not the first of its kind of page has the same style at other widths: it fits the least one.
    """
    page = tab.visit(url)
    assert says in page.locator("main").inner_text().replace("\N{NO-BREAK SPACE}", " ")
    check_size(tab)
    check_looks(tab, axe)
    check_widths(tab, (320, 820, 2560) if axe else (320,))
    tab.look(1280, media="print", forced_colors="active")
    assert tab.fits()
    assert tab.complaints == []


def address_of(pages: Pages, path: str) -> str:
    """Return the address of a page; a snapshot is named by its metric."""
    url, ids = pages
    return url + (f"/s/{ids[path.removeprefix('/s/')]}" if path.startswith("/s/") else path)


class Quiet(WSGIRequestHandler):
    def log_message(self, *said: object) -> None:
        pass


class Threaded(ThreadingMixIn, WSGIServer):
    """A server that closes what a page opened also where Chromium drops the connection, as werkzeug's does not."""

    daemon_threads = True


@contextmanager
def served(one: Site) -> Iterator[str]:
    """Serve the pages of a site; yield their address."""
    server = Threaded(("127.0.0.1", 0), Quiet)
    server.set_app(one.client.application)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
