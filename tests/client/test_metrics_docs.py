"""The page for an app's users: what it says, that nothing a registry holds breaks it, that it fits and can be read."""

import io
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from dither.cli import main
from dither.commands.metrics.docs import VALUES_MAX, page
from dither.starting import Environment
from dither.writing import to_html, to_markdown
from dither_shared.registry import Registry
from tests.support.aggregators import dither
from tests.support.numbers import FRESH, MEMO, numbers
from tests.support.registries import registry, registry_text
from tests.support.soaking import thinned
from tests.support.tables import tables

QUESTION = "Do <b>people</b> & [devices](x) use `it`, or *not* #"
HOSTILE = (
    "</bdi></details><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "&lt;b&gt; & AT&T;",
    "[link](https://example.org) ![image](x.png)",
    "**bold** _lean_ `code` ~~gone~~ $x$ | cell \\",
    "# heading",
    "- item",
    "+ item",
    "1. first",
    "1) first",
    "> quote",
    "===",
    "\u05d9\u05de\u05d9\u05df to left",
    "w" * 200,
)


def with_values(*values: str) -> Registry:
    """Return the usual registry with other values, and a hostile question."""
    listed = ", ".join(f"'{value}'" for value in values)
    text = registry_text(values=("VALUES",)).replace("Which colour do people choose?", QUESTION)
    return Registry.parse(text.replace('"VALUES"', listed))


class Read(HTMLParser):
    """The content of a page, and whether its tags close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """The text as people read it, white space aside."""
        return re.sub(r"\s+", " ", "".join(self.texts))


def html_text(asked: Registry) -> str:
    return Read(to_html(page(asked))).text


def markdown_text(asked: Registry) -> str:
    """Return what Markdown shows: marks of ours and backslashes left out."""
    text = re.sub(r"(?m)^(?:#+|-) |\*\*|</?(?:details|summary)>|(?<!\\)`", "", to_markdown(page(asked)))
    return re.sub(r"\s+", " ", re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text))


SAID = [
    ({}, ["What example asks", "This app asks 2 questions.", "Which colour do people choose?"]),
    ({}, ["One of 3 values: “red”, “green”, “blue”. Anything else is sent as “other”.", "Yes or no."]),
    ({"kind": "choices", "color": "ticks_max = 2"}, ["Up to 2 of 3 values: “red”"]),
    ({}, ["changes the odds of one answer against another by a factor of at most 7.4 (epsilon 2), from even odds"]),
    ({}, ["from even odds to at most 88.1 %.", "At most 3 reports, together a factor of at most 404 (epsilon 6)"]),
    ({"reports": 1}, ["At most 1 report, together"]),
    ({}, ["change the odds by a factor of at most 2.4 \N{MULTIPLICATION SIGN} 10¹⁷ (epsilon 40), from even odds"]),
    ({}, ["Drawn anew for every report.", "Not hidden. A report shows that your device answers"]),
    ({"expires": "2027-06-30"}, ["2027-06-30. Then devices say nothing more"]),
    ({}, ["At most once a day. Days are", "team@example.org", "Low: how much your true answer", "color"]),
    ({"period": "7d"}, ["At most once in 7 days. Days are"]),
    ({"schedule": "spread"}, ["At most once a day, at times drawn by lot in advance."]),
    ({"quiet_days": 2}, ["A new device says nothing in its first 2 days."]),
    (
        {"epsilon_permanent": "4", "epsilon": "1"},
        [
            "Drawn once for each different answer and kept.",
            "The day on which your answer changes is not hidden.",
            "All its reports together: a factor of at most 55 (epsilon 4)",
            "At most 2 different answers, together a factor of at most 2,981 (epsilon 8)",
            "After these the last one is repeated",
            "Among 200 people with your answer, about 4 could be recognised by whoever keeps all reports",
            "Among 200 people with your answers to all questions, about 6 could be recognised",
            "which questions it answered; and, where noise is kept, which answers it has given.",
        ],
    ),
    ({"epsilon_permanent": "4", "epsilon": "1", "kind": "text"}, ["A text of at most 200 characters. The totals can"]),
    (
        {"epsilon_permanent": "4", "epsilon": "1", "kind": "text", "candidates": ("a.org",)},
        [
            "The totals are searched for 1 text: “a.org”. They can be searched for any other text.",
            "a number from 0 to 127",
        ],
    ),
]


NUMBERS: list[tuple[dict[str, object], str]] = [
    (
        {"low": 0, "high": 60, "buckets": 12},
        "A number: it is sent as one of 14 ranges, from below 0 s to 60 s or more. Anything else is sent as “other”.",
    ),
    (
        {"low": 0, "high": 60, "asks": ["mean"]},
        "A number, cut to 0 s at least and 60 s at most. Coins round it to one of 65 steps.",
    ),
    (
        {**MEMO, "low": 0, "high": 60, "buckets": 8},
        "A number, cut to 0 s at least and 60 s at most. All that is sent is whether it is above a threshold that your "
        "device drew.",
    ),
    (
        {**MEMO, "low": 0, "high": 60, "buckets": 8},
        "With answers to some questions goes a number from 0 to 7, which your device draws once and keeps; many",
    ),
]


@pytest.mark.parametrize("shown", [html_text, markdown_text])
@pytest.mark.parametrize(("keys", "sentence"), NUMBERS, ids=["all", "mean", "memoized", "cohort"])
def test_the_page_says_how_finely_a_number_is_told(
    keys: dict[str, object], sentence: str, shown: Callable[[Registry], str]
) -> None:
    assert sentence in shown(numbers(delay={**({} if "memoize" in keys else FRESH), **keys}))


TABLES: list[tuple[str, str]] = [
    (
        'crashed = ["no", "yes"], version = ["157"]',
        "One answer in each of 2 columns: “crashed: no, yes”, “version: 157”. A missing answer, or anything else, is "
        "sent as “other”. One report tells all of them. Its odds are those of a whole answer, all columns together.",
    ),
    (
        'crashed = ["no", "yes"], age = { edges = [20, 40, 60], unit = "years" }, '
        'liking = { low = 0, high = 10, asks = ["mean"] }',
        "One answer in each of 3 columns: “crashed: no, yes”, “age: a number, sent as one of 4 ranges, from below 20 "
        "years to 60 years or more”, “liking: a number, cut to 0 at least and 10 at most, which coins round to one of "
        "these two”. A missing answer, or anything else, is sent as “other”. One report tells two of them, drawn by "
        "lot.",
    ),
]


@pytest.mark.parametrize("shown", [html_text, markdown_text])
@pytest.mark.parametrize(("columns", "sentence"), TABLES, ids=["at once", "in pairs"])
def test_the_page_says_what_a_table_takes_and_how_much_a_report_tells(
    columns: str, sentence: str, shown: Callable[[Registry], str]
) -> None:
    assert sentence in shown(tables(columns))


def test_long_columns_are_folded_and_longer_ones_shortened() -> None:
    values = ", ".join(f'"version number {place}"' for place in range(60))
    html = to_html(page(tables(f'crashed = ["no", "yes"], version = [{values}]')))
    assert "One answer in each of 2 columns. A missing answer" in html
    assert "<summary>Show the 2 columns</summary>" in html
    assert "version number 49 and 10 more</bdi>" in html


@pytest.mark.parametrize("shown", [html_text, markdown_text])
@pytest.mark.parametrize(("changes", "sentences"), SAID, ids=[sentences[0] for _, sentences in SAID])
def test_the_page_says_what_the_registry_asks(
    changes: dict[str, object], sentences: list[str], shown: Callable[[Registry], str]
) -> None:
    text = shown(registry(**changes))
    for sentence in sentences:
        assert sentence in text


def test_what_does_not_apply_is_not_said() -> None:
    text = html_text(registry(quiet_days=0))
    for sentence in ("a number from 0", "A new device", "where noise is kept", "Hidden.", "Repeating an answer"):
        assert sentence not in text


def test_hidden_presence_is_explained() -> None:
    text = html_text(Registry.parse(registry_text().replace('"public"', '"hidden"')))
    assert "Hidden. A device with nothing to say answers “none”" in text
    assert "Not hidden" not in text
    assert "3 values: “red”, “green”, “blue”. Anything" in text


@pytest.mark.parametrize("shown", [html_text, markdown_text])
def test_it_says_how_to_refuse_and_that_is_how(shown: Callable[[Registry], str]) -> None:
    text = shown(registry())
    for setting in ("DO_NOT_TRACK=1", "DITHER_TELEMETRY=0"):
        assert setting in text
        assert Environment.read(dict([setting.split("=")])).silent
    for sentence in ("Say no in the app's settings", "Never sent are", "cookies", "network address"):
        assert sentence in text


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "0.7", "1.098613", "2", "2.302586", "5", "6.9", "14.1", "20"])
def test_what_a_factor_shows_is_never_below_it(epsilon: str) -> None:
    text = html_text(registry(epsilon=epsilon, reports=1, device_epsilon="100"))
    match = re.search(r"against another by a factor of at most ([\d,.]+)(?: . 10([⁰¹²³⁴-⁹]+))?", text)
    assert match
    raised = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    shown = float(match[1].replace(",", "")) * 10.0 ** int((match[2] or "⁰").translate(raised))
    assert 1 - 1e-6 <= shown / math.exp(float(epsilon)) < 1.11


@pytest.mark.parametrize(
    ("number", "summary"), [(8, None), (9, "Show the 9 values"), (300, "Show the first 200 of 300 values")]
)
def test_long_lists_are_folded_and_longer_ones_shortened(number: int, summary: str | None) -> None:
    asked = with_values(*(f"Value {place}" for place in range(number)))
    html = to_html(page(asked))
    assert html.count("<li>") == (min(number, VALUES_MAX) if summary else 0)
    assert html.count("Value ") == min(number, VALUES_MAX)
    assert re.findall("<summary>(.*)</summary>", html) == ([summary] if summary else [])
    assert re.findall("<summary>(.*)</summary>", to_markdown(page(asked))) == ([summary] if summary else [])
    assert f"One of {number} values" in html


@pytest.mark.parametrize("hostile", [HOSTILE, HOSTILE[:3]], ids=["in a list", "in a sentence"])
def test_html_shows_hostile_texts_and_obeys_none(hostile: tuple[str, ...]) -> None:
    read, harmless = Read(to_html(page(with_values(*hostile)))), Read(to_html(page(with_values(*"abc"))))
    assert set(read.tags) - set(harmless.tags) <= {"details", "summary", "ul", "li"}
    assert read.attributes == harmless.attributes
    for text in (*hostile, QUESTION):
        assert text in read.texts


def test_markdown_shows_hostile_texts_and_obeys_none() -> None:
    markdown = to_markdown(page(with_values(*HOSTILE)))
    lines = markdown.splitlines()
    items = [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]
    assert len(items) == len(HOSTILE)
    for value, item in zip(HOSTILE, items, strict=True):
        assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", item) == value
        # No mark is left without a backslash: neither one inside a line nor one at its start.
        unescaped = re.sub(r"\\.", "X", item)
        assert not re.search(r"[*_`<>\[\]&~$|#\\]|^[+=-]|^\d+[.)]", unescaped), item
    headings = [line for line in lines if re.match("#+ ", line)]
    assert headings[2] == r"### Do \<b\>people\</b\> \& \[devices\](x) use \`it\`, or \*not\* \#"
    assert len(headings) == 8


def test_the_page_is_accessible_and_loads_nothing() -> None:
    html = to_html(page(with_values(*HOSTILE)))
    read = Read(html)
    assert html.startswith('<!doctype html>\n<html lang="en">')
    assert [read.tags.count(tag) for tag in ("html", "title", "header", "main", "h1")] == [1] * 5
    levels = [int(tag[1]) for tag in read.tags if re.fullmatch("h[1-6]", tag)]
    assert all(deeper <= level + 1 for level, deeper in pairwise(levels))
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(read.tags)
    assert {name for name, _ in read.attributes} == {"lang", "charset", "name", "content"}
    assert not re.search(r"url\(|@import|https?:", html.split("</style>")[0])


def test_it_goes_to_a_file_or_to_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "metrics.toml", tmp_path / "page"
    path.write_text(registry_text(values=("grün",)), encoding="utf-8")
    for arguments, render in (((), to_html), (("--format", "markdown"), to_markdown)):
        command = ["metrics", "docs", str(path), *arguments]
        assert main(command) == 0
        assert capsys.readouterr().out == render(page(Registry.load(path)))
        assert main([*command, "--out", str(out)]) == 0
        assert out.read_text(encoding="utf-8") == render(page(Registry.load(path)))
        assert capsys.readouterr().out == ""
    # A document is in UTF-8, whatever the terminal takes.
    terminal = io.TextIOWrapper(shown := io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(command) == 0
    terminal.flush()
    assert shown.getvalue() == out.read_bytes()


def test_what_cannot_be_read_or_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    for arguments, message in (
        ([tmp_path / "none.toml"], "none.toml: cannot be read: No such file or directory"),
        ([path, "--out", tmp_path / "none" / "page.html"], "No such file or directory"),
        ([path, "--format", "pdf"], "invalid choice: 'pdf'"),
    ):
        done = dither("metrics", "docs", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr


BRIGHTNESS = """element => {
    const rgb = getComputedStyle(element).getPropertyValue(element.tagName == 'BODY' ? 'background-color' : 'color')
    return rgb.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765
}"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "scheme"), thinned([(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")], 0, 3)
)
def test_the_page_fits_and_can_be_read(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(to_html(page(with_values(*HOSTILE))), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    opened = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("console", lambda message: complaints.append(message.text))
    opened.goto(file.as_uri())
    opened.locator("summary").click()
    assert opened.get_by_text("1. first", exact=True).is_visible()
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    background = opened.locator("body").evaluate(BRIGHTNESS)
    assert (background < 0.5) == (scheme == "dark")
    for element, contrast in (("h1", 0.7), ("dt", 0.45), ("summary", 0.45)):
        assert abs(background - opened.locator(element).first.evaluate(BRIGHTNESS)) > contrast
    assert (requests, complaints) == ([file.as_uri()], [])
    context.close()
