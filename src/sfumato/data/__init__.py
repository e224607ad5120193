"""Named data sets with what may be said of them in public: two tables of people, one of a lecture.

    >>> from sfumato.data import table_facts
    >>> facts = table_facts("labsup")
    >>> facts.rows, facts.column("age").bounds
    (31857, (21.0, 35.0))

Nothing here imports pandas until a table is loaded.
"""

from sfumato.data.cache import cache_folder
from sfumato.data.facts import Column, TableFacts
from sfumato.data.tables import (
    credit_ratings,
    load_table,
    table_facts,
    table_names,
    table_path,
)

__all__ = [
    "Column",
    "TableFacts",
    "cache_folder",
    "credit_ratings",
    "load_table",
    "table_facts",
    "table_names",
    "table_path",
]
