"""One door to every data set: by name, or data of your own with what is declared about it.

    from sfumato.data import load_dataset, read_declaration

    data = load_dataset("mnist")
    data = load_dataset("labsup")
    data = load_dataset("patients.parquet", read_declaration("patients.toml"))

The names there are:

    >>> dataset_names()
    ('mnist', 'fashion-mnist', 'cifar10', 'digits', 'labsup', 'census2000')
"""

from __future__ import annotations

from sfumato.data.declarations import Declaration
from sfumato.data.declared import Features, Pictures
from sfumato.data.examples import Dataset
from sfumato.data.images import image_names, load_images
from sfumato.data.own import Source, load_own
from sfumato.data.tasks import load_task, task_names

__all__ = ["dataset_names", "load_dataset"]


def dataset_names() -> tuple[str, ...]:
    """The data sets that can be had by name: images, then tables."""
    return (*image_names(), *task_names())


def load_dataset(
    source: Source,
    declared: Declaration | Features | Pictures | None = None,
    test: Source | None = None,
) -> Dataset:
    """The data set called ``source``, or the data of your own that is there.

    A name always means the named data set, whatever the folder one is in holds; ``./mnist`` is the
    file or folder of that name.

    Args:
        source: one of :func:`dataset_names`, or as for :func:`~sfumato.data.own.load_own`: a path,
            ``"module:function"`` or a function.
        declared: what is public about data of your own; not for named ones, where it is published.
        test: where to find the examples of your own to test on.

    Raises:
        ValueError: for an unknown name, or another parameter that cannot be; never because of a
            row.
        OSError: if there is no such file, or a named data set cannot be had.
    """
    if isinstance(source, str) and source in dataset_names():
        if declared is not None or test is not None:
            raise ValueError(
                f"{source!r} is a named data set, all of which is published: leave out the "
                f"declaration and the test set, or write './{source}' for a file of your own"
            )
        return load_images(source) if source in image_names() else load_task(source)
    if declared is None:
        raise ValueError(
            f"data set must be one of {', '.join(dataset_names())}, or data of your own with what "
            f"is public about it (declared=..., --declared FILE), got {_shown(source)}"
        )
    return load_own(source, declared, test=test)


def _shown(source: Source) -> str:
    return "a function" if callable(source) else repr(str(source))
