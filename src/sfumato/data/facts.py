"""What may be said of a table without looking into it: columns, ranges, categories, citation.

Bounds and categories of a private query must be declared, never measured. Those here follow from
how the data were collected and coded (who was sampled, where the census cuts its codes off),
rounded outwards, and not from the smallest and largest value that happen to be in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfumato.core import validation

__all__ = ["CENSUS2000", "CREDIT_RATINGS", "LABSUP", "Column", "TableFacts"]


@dataclass(frozen=True)
class Column:
    """One column, and what its values may be.

    Attributes:
        name: the column.
        meaning: what it says of a person.
        lower, upper: the range one may declare, for numbers.
        categories: the values one may declare, for categories.
        default: what takes the place of a value that is missing or no such thing, where features
            are made of the column; None is the middle of the range, or no category at all.
    """

    name: str
    meaning: str = ""
    lower: float | None = None
    upper: float | None = None
    categories: tuple[Any, ...] | None = None
    default: Any = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The declared range, or None for a category or a key."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)


@dataclass(frozen=True)
class TableFacts:
    """What is public about a table.

    Attributes:
        name: of the table.
        about: who the rows are, in a sentence.
        rows: how many rows, each one person; published with the table.
        columns: in the order of the table.
        citation: whose data it is.
        sha256: of the file it is read from; empty for one that is built in code.
    """

    name: str
    about: str
    rows: int
    columns: tuple[Column, ...]
    citation: str
    sha256: str = ""

    @property
    def unit(self) -> str:
        """The column that tells people apart: a number we give to each row."""
        return "person_id"

    def column(self, name: str) -> Column:
        """The column of that name."""
        known = {column.name: column for column in self.columns}
        if name not in known:
            validation.fail("column", f"one of {', '.join(known)}", name)
        return known[name]

    def __str__(self) -> str:
        return f"{self.name}: {self.rows:,} people, {len(self.columns)} columns. {self.about}"


_KEY = Column("person_id", "the row's number, from 1, given here")


def _flag(name: str, meaning: str) -> Column:
    return Column(name, meaning, categories=(0, 1))


def _number(name: str, meaning: str, lower: float, upper: float) -> Column:
    return Column(name, meaning, float(lower), float(upper))


LABSUP = TableFacts(
    name="labsup",
    about=(
        "Black or Hispanic mothers of two or more children, 21 to 35 years old, in the US census "
        "of 1980; incomes in thousands of dollars of 1995."
    ),
    rows=31_857,
    columns=(
        _KEY,
        _number("kids", "number of children, cut off at 12", 2, 12),
        _flag("morekids", "more than two children"),
        _flag("boys2", "the first two children are boys"),
        _flag("girls2", "the first two children are girls"),
        _flag("boy1st", "the first child is a boy"),
        _flag("boy2nd", "the second child is a boy"),
        _flag("samesex", "the first two children are of the same sex"),
        _flag("multi2nd", "the second birth was of twins"),
        _number("age", "age of the mother", 21, 35),
        _number("agefstm", "her age at the first birth", 15, 35),
        _flag("black", "black"),
        _flag("hispan", "Hispanic"),
        _flag("worked", "worked last year"),
        _number("weeks", "weeks worked last year", 0, 52),
        _number("hours", "hours worked a week, cut off at 99", 0, 99),
        _number("labinc", "her income from work, in 1000 dollars", 0, 200),
        _number("faminc", "income of the family, in 1000 dollars", -25, 160),
        _number("nonmomi", "income of the family but hers, in 1000 dollars", -225, 160),
        _number("educ", "years of education", 0, 20),
        _number("agesq", "age squared", 441, 1225),
    ),
    citation=(
        "Angrist and Evans, 'Children and their parents' labor supply', American Economic Review "
        "88(3), 450-477 (1998), as in Wooldridge, 'Introductory Econometrics', 7th edition"
    ),
    sha256="fad7f4b179c5ed740af85477ad1109273e5035399c12e6534dbf9e6696c9535c",
)

_STATES = (
    "Alabama,Alaska,Arizona,Arkansas,California,Colorado,Connecticut,Delaware,"
    "District of Columbia,Florida,Georgia,Hawaii,Idaho,Illinois,Indiana,Iowa,Kansas,Kentucky,"
    "Louisiana,Maine,Maryland,Massachusetts,Michigan,Minnesota,Mississippi,Missouri,Montana,"
    "Nebraska,Nevada,New Hampshire,New Jersey,New Mexico,New York,North Carolina,North Dakota,"
    "Ohio,Oklahoma,Oregon,Pennsylvania,Rhode Island,South Carolina,South Dakota,Tennessee,Texas,"
    "Utah,Vermont,Virginia,Washington,West Virginia,Wisconsin,Wyoming"
)

CENSUS2000 = TableFacts(
    name="census2000",
    about="People with an income from work in the US census of 2000.",
    rows=29_501,
    columns=(
        _KEY,
        Column("state", "state", categories=tuple(_STATES.split(","))),
        _number("puma", "census area within the state, a code of five digits", 0, 99_999),
        _number("educ", "years of education", 0, 20),
        # From one dollar a year (ln 1/52 = -3.95) to 442,000 dollars a week.
        _number("lweekinc", "logarithm of the weekly income in dollars", -4, 13),
        _number("exper", "years of work experience", 0, 60),
        _number("expersq", "experience squared", 0, 3600),
    ),
    citation=(
        "US Census Bureau (2000), provided by Alberto Abadie to Wooldridge, 'Introductory "
        "Econometrics', 7th edition"
    ),
    sha256="ff4ec6f7919d85078c68872f46f872ea1d7ea597e75a1382ce2cb798ec37bdfd",
)

CREDIT_RATINGS = TableFacts(
    name="credit_ratings",
    about="A lecture's example: 3 bad, 1,510 normal and 200 good ratings.",
    rows=1_713,
    columns=(_KEY, Column("rating", "credit rating", categories=("Bad", "Normal", "Good"))),
    citation="A lecture's table of a sensitive database, one row for each person it counts",
)
