"""A sentence starts with its subject: none opens with "What", "Whoever", "Of" or "Where", which are read twice.

Looked at are pages, docstrings, comments, messages and templates. A question may open with any of them, and so may a
heading or a label, which has no full stop.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = "(?:What|Whoever|Whatever|Of|Where)\\b"
OPENERS = re.compile(rf"(?:^|(?<=[.!?] )){WORDS}[^.!?]*[.!?]?", re.MULTILINE)
OPENER = re.compile(WORDS)
"""A source without it has no such sentence, and need not be read."""
PLANTED = {
    '"""What a device keeps."""\n': 1,
    "# Short. Of these, one\n# is left.\n": 1,
    "x = 1  # what is this?\n": 0,
    '"""Return it. Where is it?"""\n': 0,
    'x = "What a text"\n': 0,
    '"""The sum of what is there.\n\nWhoever reads it, counts."""\n': 1,
}


def prose(source: str) -> Iterator[str]:
    """Yield each docstring and each block of comments of a module, as one line a paragraph."""
    block: list[str] = []
    last, starts = 0, True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] > last + 1:
                yield from paragraphs("\n".join(block))
                block = []
            block.append(token.string.lstrip("#: "))
            last = token.start[0]
        elif token.type == tokenize.STRING and starts:
            yield from paragraphs(token.string.strip("rb\"'"))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            starts = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    yield from paragraphs("\n".join(block))


def paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-|#>]|\d+\.) )", text):
        yield re.sub(r"^[-#>|*\s]+", "", " ".join(line.strip() for line in paragraph.splitlines()))


def cells(page: str) -> Iterator[str]:
    """Yield the paragraphs, items and table cells of a page, without its code, its headings and those of tables."""
    for paragraph in paragraphs(re.sub(r"```.*?```|^#[^\n]*$", "", page, flags=re.DOTALL | re.MULTILINE)):
        if not re.search(r"\|\s*-{3}", paragraph):
            yield from (cell.strip(" *") for cell in paragraph.split(" | "))


def openers(texts: Iterator[str]) -> list[str]:
    return [found for text in texts for found in OPENERS.findall(text) if not found.endswith("?")]


@pytest.mark.parametrize("room", ["client", "shared", "aggregator", "deploy", "tests", ""])
def test_no_sentence_is_read_twice(room: str) -> None:
    below = ROOT / room if room else ROOT
    files = [path for suffix in ("py", "md") for path in (below.rglob if room else below.glob)(f"*.{suffix}")]
    found = {
        str(path.relative_to(ROOT)): opened
        for path in sorted(files)
        for text in [path.read_text(encoding="utf-8")]
        if OPENER.search(text)
        if (opened := openers(prose(text) if path.suffix == ".py" else cells(text)))
    }
    shown = "\n".join(f"{path}: {one}" for path, opened in found.items() for one in opened)
    assert not found, f"{sum(map(len, found.values()))} sentences:\n{shown}"


def test_such_sentences_are_found_on_pages() -> None:
    page = "# What it is\n\nThis is it. What is not, goes.\n\n| what | of |\n|---|---|\n| Of it all | Where? |\n"
    assert openers(cells(page)) == ["What is not, goes.", "Of it all"]


@pytest.mark.parametrize(("source", "number"), PLANTED.items(), ids=repr)
def test_such_sentences_are_found(source: str, number: int) -> None:
    assert len(openers(prose(source))) == number


def messages(source: str) -> Iterator[str]:
    """Yield each string of a module that is no docstring, with all its parts, and X for what is put in."""
    nodes = list(ast.walk(ast.parse(source)))
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


INLINE = re.compile(r"</?(?:a|abbr|b|bdi|code|em|i|kbd|mark|small|span|strong|sub|sup|time|var)\b[^>]*>")
"""Tags within a sentence: it goes on behind them."""


def words_of(template: str) -> Iterator[str]:
    """Yield the paragraphs of a template, each as one line: between tags that end one, and statements."""
    put_in = INLINE.sub("", re.sub(r"\{\{.*?\}\}", "X", template, flags=re.DOTALL))
    words = re.sub(r"<[^>]*>|\{%.*?%\}", "\n\n", put_in, flags=re.DOTALL)
    yield from (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", words))


def told(texts: Iterator[str]) -> list[str]:
    """Return the sentences that are read twice. Without a full stop it is a heading or a label."""
    return [one for one in openers(texts) if one.endswith((".", "!"))]


@pytest.mark.parametrize("room", ["client", "shared", "aggregator"])
def test_no_message_and_no_words_of_a_page_are_read_twice(room: str) -> None:
    found = {}
    for read, suffix in ((messages, "py"), (words_of, "html")):
        for path in sorted((ROOT / room).rglob(f"*.{suffix}")):
            if opened := told(read(path.read_text(encoding="utf-8"))):
                found[str(path.relative_to(ROOT))] = opened
    assert not found, found


def test_such_messages_and_words_are_found() -> None:
    source = f'''"""{"Of"} a docstring."""\nx = f"It is. What {{y}} has " "is gone."\nHEADING = "What it is"\n'''
    assert told(messages(source)) == ["What X has is gone."]
    page = """<h1>What it is</h1><p>Where <b class="it">it</b> is, it stays.{% if a %}Of it.{% endif %}</p>
    <p>
        Whatever {{ it
        .name }} has,
        it keeps. <a href="/">What</a> is left?
    </p>"""
    assert told(words_of(page)) == ["Where it is, it stays.", "Of it.", "Whatever X has, it keeps."]
