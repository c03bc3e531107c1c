"""Output of commands: a page of headings, paragraphs and facts, as HTML or as Markdown."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

from dither_shared.errors import ConfigurationError
from dither_shared.safe_output import behind, visible

# Work that takes minutes tries its file first, and says how far it is.


def check_writable(out: Path) -> None:
    """Raise ConfigurationError or OSError where a file cannot be written: work that takes minutes tries it first."""
    if not out.parent.is_dir():
        raise ConfigurationError(f"{out} cannot be written: there is no folder {out.parent}, make it first")
    was_there = out.exists()
    with out.open("a"):
        pass
    if not was_there:
        out.unlink()


def progress(doing: str) -> None:
    """Say on stderr what is done now: on one line where somebody watches, which "" clears."""
    if sys.stderr.isatty():
        print(f"\r\033[K{visible(doing)}", end="", file=behind(sys.stderr), flush=True)
    elif doing:
        print(doing, file=sys.stderr, flush=True)


# A page of headings, paragraphs and facts, as HTML or as Markdown. Its texts may hold anything: both escape.


class Code(str):
    """A part of a text that people type, or look for in a file."""

    __slots__ = ()


class Quoted(str):
    """A part of a text in somebody else's words, which may run from right to left."""

    __slots__ = ()


Text = tuple[str, ...]
"""A text in parts, some of which are Code or Said."""


@dataclass(frozen=True)
class Heading:
    """A heading. Level 1 is the page's title."""

    level: int
    text: Text


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: Text


@dataclass(frozen=True)
class Fact:
    """A term, what is to be known about it, and perhaps a list to unfold."""

    term: str
    text: Text
    summary: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class FactList:
    """FactList that belong together."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class TextTable:
    """TextTable under a head. The first cell of a row names it; `summary` is what unfolds them, "" if they are open."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    label: str
    summary: str = ""


@dataclass(frozen=True)
class Drawing:
    """A figure, and the style that it needs. Markdown leaves it out: the numbers stand in a table beside it."""

    html: str
    style: str


Block = Heading | Paragraph | FactList | TextTable | Drawing


@dataclass(frozen=True)
class Page:
    """A page: its title, what it says in short, and the rest in order."""

    title: Text
    lead: Text
    blocks: tuple[Block, ...]


def to_html(page: Page) -> str:
    """Return one HTML file that loads nothing, for light and dark, phone and desk."""
    body = "\n".join(map(_html_block, page.blocks))
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape("".join(page.title))}</title>
<style>
{_STYLE}{"".join({block.style for block in page.blocks if isinstance(block, Drawing)})}</style>
</head>
<body>
<header>
<h1>{_html(page.title)}</h1>
<p>{_html(page.lead)}</p>
</header>
<main>
{body}
</main>
</body>
</html>
"""


_STYLE = """\
:root { color-scheme: light dark; --page: #fcfcfa; --text: #1d2329; --quiet: #5c6670; --line: #dfe3e6; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181c; --text: #e4e8eb; --quiet: #9aa5af; --line: #2a3138; }
}
body {
  max-width: 44rem; margin: 0 auto; padding: 1rem 1rem 3rem; overflow-wrap: anywhere;
  background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
h1 { font-size: 1.6rem; line-height: 1.25; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
code { font: .92em ui-monospace, "SF Mono", Menlo, "Liberation Mono", monospace; }
dl { margin: 0; }
dl div { padding: .5rem 0; border-top: 1px solid var(--line); }
dt { color: var(--quiet); font-size: .875rem; }
dd { margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem 0 .35rem .9rem; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child { padding-left: 0; text-align: left; white-space: normal; overflow-wrap: normal; }
tbody th { min-width: 7rem; }
details { margin: .5rem 0; }
thead th { color: var(--quiet); font-weight: normal; }
tbody tr { border-top: 1px solid var(--line); }
tbody th { font-weight: normal; }
summary { cursor: pointer; color: var(--quiet); }
ul { columns: 12rem; column-gap: 2rem; margin: .5rem 0; padding-left: 1.25rem; }
@media (min-width: 40rem) {
  dl div { display: grid; grid-template-columns: 10rem 1fr; gap: 1rem; }
  dt { padding-top: .1rem; }
}
"""


def _html_block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{_html(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_html(text)}</p>"
        case FactList(facts):
            return "<dl>\n" + "".join(map(_html_fact, facts)) + "</dl>"
        case TextTable():
            return _html_table(block)
        case Drawing(html=html):
            return html


def _html_table(table: TextTable) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>\n'
        for row in table.rows
    )
    # Anything wider than a phone scrolls in a region of its own, with keys too.
    html = (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(table.label)}">\n<table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
    )
    if not table.summary:
        return html
    return f"<details>\n<summary>{escape(table.summary)}</summary>\n{html}\n</details>"


def _html_fact(fact: Fact) -> str:
    unfold = ""
    if fact.values:
        items = "".join(f"<li>{_html((Quoted(value),))}</li>\n" for value in fact.values)
        unfold = f"\n<details>\n<summary>{escape(fact.summary)}</summary>\n<ul>\n{items}</ul>\n</details>\n"
    return f"<div><dt>{escape(fact.term)}</dt><dd>{_html(fact.text)}{unfold}</dd></div>\n"


def _html(text: Text) -> str:
    # <bdi> keeps a text that runs from right to left from turning its neighbours.
    tags = {Code: "<code>{}</code>", Quoted: "<bdi>{}</bdi>"}
    return "".join(tags.get(type(part), "{}").format(escape(part)) for part in text)


def to_markdown(page: Page) -> str:
    """Return the page as Markdown, with lists unfolded by the HTML that GitHub and most others allow in it."""
    blocks = (Heading(1, page.title), Paragraph(page.lead), *page.blocks)
    return "\n\n".join(map(_markdown_block, blocks)) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {_markdown(text)}"
        case Paragraph(text):
            return _markdown(text)
        case FactList(facts):
            return "\n".join(map(_markdown_fact, facts))
        case TextTable(head, rows):
            lines = (head, ("---",) * len(head), *rows)
            return "\n".join(f"| {' | '.join(map(_escape_markdown, line))} |" for line in lines)
        case Drawing():
            return ""


def _markdown_fact(fact: Fact) -> str:
    unfold = ""
    if fact.values:
        items = "".join(f"  - {_markdown((value,))}\n" for value in fact.values)
        unfold = f"\n\n  <details><summary>{escape(fact.summary)}</summary>\n\n{items}\n  </details>\n"
    return f"- **{fact.term}:** {_markdown(fact.text)}{unfold}"


def _markdown(text: Text) -> str:
    return "".join(f"`{part}`" if isinstance(part, Code) else _escape_markdown(part) for part in text)


def _escape_markdown(text: str) -> str:
    """Escape what means something inside a line, and at its start what would make it a list or a line."""
    text = re.sub(r"[\\`*_\[\]<>&~$|#]", r"\\\g<0>", text)
    text = re.sub(r"^[+=-]", r"\\\g<0>", text)
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", text)
