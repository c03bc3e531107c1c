"""CSV that a spreadsheet opens: texts are no formulas, numbers stay numbers, and Python reads back what was meant."""

import csv
import io

import pytest

from dither_aggregator.web.csv_cells import to_csv


def read(table: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table, newline="")))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=cmd|"/c calc"!A1', "-"])
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert read(to_csv(["value"], [[text]])) == [["value"], [f"'{text}"]]


@pytest.mark.parametrize("text", ["red", "1+1", "a=b", "'=1", " =1", "Größe", "“quoted”", 'say "hi"', "one\ntwo", ""])
def test_any_other_text_stays_what_it_is(text: str) -> None:
    assert read(to_csv(["value", "n"], [[text, 1]])) == [["value", "n"], [text, "1"]]


@pytest.mark.parametrize("text", ["a,=1", "a;=1", "a\t=1", 'a";"=1'])
def test_a_separator_of_any_locale_begins_no_cell(text: str) -> None:
    (line,) = to_csv(["value"], [[text]]).splitlines()[1:]
    assert line.startswith('"')
    assert line.endswith('"')
    assert read(line) == [[text]]


@pytest.mark.parametrize("number", [-1, -0.25, 1e-300, -1.5e22, 0.1 + 0.2, 10**18])
def test_a_number_stays_a_number(number: float) -> None:
    cell = to_csv(["n"], [[number]]).splitlines()[1]
    assert type(number)(cell) == number


def test_nothing_is_an_empty_cell() -> None:
    assert to_csv(["a", "b", "c"], [[None, True, ""]]) == "a,b,c\r\n,true,\r\n"
