"""A declaration: everything that is public about data of one's own, in a file or in code.

    label = "diagnosis"
    classes = ["healthy", "ill"]
    records = 5000

    [columns.age]
    lower = 0
    upper = 100

    [columns.smoker]
    categories = ["yes", "no"]
    default = "no"

The same can be written as JSON. A label that is a number has ``label_bounds = [0, 100]`` instead of
classes, and may have ``default_label`` for one that is missing. Pictures have
``shape = [32, 32, 1]`` instead of label and columns.
A declaration is made without looking at the rows, and nothing of it is compared with them: a number
of records that is not the true one is no error, since the true one may be private.

    >>> scans = Declaration(Pictures((32, 32, 1), classes=("healthy", "ill")), records=5000)
    >>> scans.unit, scans.public_size, scans.to_dict()["shape"]
    ('record', 5000, [32, 32, 1])
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.core import validation
from sfumato.core.json_files import parsed, read_text
from sfumato.data.declared import Features, Pictures
from sfumato.data.declared_values import OTHER_KEYS, declared_from_dict, declared_to_dict

__all__ = ["Declaration", "declaration_of", "read_declaration"]


@dataclass(frozen=True)
class Declaration:
    """What is public about data of one's own.

    Attributes:
        declared: its columns or pictures, and its labels.
        records: how many records there are to train on, as one may say in public.
        owner: for tables the column that says whose a row is; None if every row is a unit of its
            own. Rows whose owner is missing are never trained on.
        unit: what one owner is called, or one record: whom the guarantee is to protect; empty is
            "owner" or "record".
        rows_per_owner: the most rows of one owner in a lot.
        owners: how many owners there are to train on, as one may say in public.
        public_test: whether the rows to test on are public, so that accuracy on them may be told.
    """

    declared: Features | Pictures
    records: int | None = None
    owner: str | None = None
    unit: str = ""
    rows_per_owner: int = 1
    owners: int | None = None
    public_test: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.declared, Features | Pictures):
            validation.fail("declared", "Features(...) or Pictures(...)", self.declared)
        for name in ("records", "rows_per_owner", "owners"):
            value = getattr(self, name)
            if value is not None or name == "rows_per_owner":
                object.__setattr__(self, name, validation.count(name, value))
        if not isinstance(self.public_test, bool):
            validation.fail("public_test", "true or false", self.public_test)
        if self.owner is None:
            self._check_without_owner()
        else:
            self._check_owner()
        if self.unit == "":
            object.__setattr__(self, "unit", "record" if self.owner is None else "owner")
        validation.name("unit", self.unit)

    def _check_without_owner(self) -> None:
        for name, neutral in (("rows_per_owner", 1), ("owners", None)):
            if (value := getattr(self, name)) != neutral:
                raise ValueError(
                    f"{name} must be left out where every row is a unit of its own, got {value!r}: "
                    "name the column of owners as owner"
                )

    def _check_owner(self) -> None:
        if isinstance(self.declared, Pictures):
            validation.fail("owner", "left out for pictures, which have no columns", self.owner)
        validation.name("owner", self.owner)
        if self.owner in self.declared.names:
            validation.fail("owner", "another column than the label and the inputs", self.owner)
        if self.unit == "record":
            raise ValueError(
                "unit must name whom the owners are, such as 'person', got 'record': it is they "
                "who are protected"
            )

    @property
    def public_size(self) -> int | None:
        """The declared number of units: of owners if there are any, of records otherwise."""
        return self.records if self.owner is None else self.owners

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a record or a JSON file; :func:`read_declaration` reads it back."""
        said = declared_to_dict(self.declared) | {"unit": self.unit}
        if self.records is not None:
            said["records"] = self.records
        if self.owner is not None:
            said |= {"owner": self.owner, "rows_per_owner": self.rows_per_owner}
        if self.owners is not None:
            said["owners"] = self.owners
        return said | {"public_test": self.public_test}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Declaration:
        """The declaration of these keys and values.

        Raises:
            ValueError: for a key that is unknown or missing, or a value that cannot be.
        """
        declared = declared_from_dict(said)
        return cls(declared, **{key: said[key] for key in OTHER_KEYS if key in said})


def declaration_of(declared: Declaration | Features | Pictures) -> Declaration:
    """What was declared, as a whole: without more, every row is a unit of its own."""
    if isinstance(declared, Declaration):
        return declared
    if not isinstance(declared, Features | Pictures):
        validation.fail("declared", "Features(...), Pictures(...) or Declaration(...)", declared)
    return Declaration(declared)


def read_declaration(path: Path | str) -> Declaration:
    """The declaration in a file ``.toml`` or ``.json``; reads no data.

    Raises:
        ValueError: if it is no such file, or says something that cannot be: names the key.
        OSError: if there is no such file.
    """
    path = Path(path)
    if path.suffix.lower() not in (".toml", ".json"):
        validation.fail("declaration", "a file that ends in .toml or .json", str(path))
    if not path.is_file():
        raise FileNotFoundError(f"declaration must be there, got {str(path)!r}")
    text = read_text(path)
    try:
        return Declaration.from_dict(_parsed(text, path.suffix.lower()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def _parsed(text: str, ending: str) -> Mapping[str, Any]:
    if ending == ".toml":
        return tomllib.loads(text)
    said = parsed(text)
    if not isinstance(said, dict):
        validation.fail("a declaration", "one JSON object", said)
    return said
