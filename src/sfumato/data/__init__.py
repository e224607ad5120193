"""Named data sets with what may be said of them in public, and data of your own.

    >>> from sfumato.data import image_facts, table_facts
    >>> facts = table_facts("labsup")
    >>> facts.rows, facts.column("age").bounds
    (31857, (21.0, 35.0))
    >>> image_facts("mnist").shape
    (28, 28, 1)

Nothing here imports pandas, pyarrow or Pillow until data is loaded.
"""

from sfumato.data.cache import DataUnavailable, cache_folder
from sfumato.data.declarations import Declaration, read_declaration
from sfumato.data.declared import Features, Pictures
from sfumato.data.examples import Dataset, Examples
from sfumato.data.facts import Column, TableFacts
from sfumato.data.image_facts import ImageFacts
from sfumato.data.images import (
    fetch_images,
    image_facts,
    image_names,
    images_folder,
    images_present,
    load_images,
    save_images,
)
from sfumato.data.loading import dataset_names, load_dataset
from sfumato.data.own import load_own
from sfumato.data.own_inputs import load_inputs
from sfumato.data.tables import (
    credit_ratings,
    load_table,
    table_facts,
    table_names,
    table_path,
)
from sfumato.data.tasks import TaskFacts, load_task, task_facts, task_names

__all__ = [
    "Column",
    "DataUnavailable",
    "Dataset",
    "Declaration",
    "Examples",
    "Features",
    "ImageFacts",
    "Pictures",
    "TableFacts",
    "TaskFacts",
    "cache_folder",
    "credit_ratings",
    "dataset_names",
    "fetch_images",
    "image_facts",
    "image_names",
    "images_folder",
    "images_present",
    "load_dataset",
    "load_images",
    "load_inputs",
    "load_own",
    "load_table",
    "load_task",
    "read_declaration",
    "save_images",
    "table_facts",
    "table_names",
    "table_path",
    "task_facts",
    "task_names",
]
