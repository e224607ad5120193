"""What is attacked: a finished run, or a model of the user's own, with examples on both sides.

Inputs are as models take them: float32 in [0, 1], channels first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.cli.kept_requests import kept_declaration, kept_request
from sfumato.core import validation

if TYPE_CHECKING:
    from sfumato.attacks.candidates import Candidates
    from sfumato.attacks.targets import Target
    from sfumato.core.guarantee import Guarantee
    from sfumato.data import Dataset, Declaration
    from sfumato.learning.runs import RunFolder

__all__ = ["Attacked", "attacked"]

_ENOUGH = 100  # rows that were left out, to be the others


@dataclass(frozen=True, eq=False)
class Attacked:
    """A model with those whose membership is known to the curator.

    Attributes:
        target: the model, with all that is known of it; an attack shows less of it.
        data: members are its training set, others its test set.
        claim: what was promised; None for a model that promises nothing.
        folder: of the run; None for other models.
        recipe: of the run; None for other models.
    """

    target: Target
    data: Dataset
    claim: Guarantee | None = None
    folder: RunFolder | None = None
    recipe: Any = None

    @property
    def taught(self) -> bool:
        """Whether it is a student of teachers, who alone saw the members."""
        return self.recipe is not None and hasattr(self.recipe, "teachers")

    def inputs(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Examples of the data set as models take them."""
        from sfumato.learning.recipes.inputs import inputs_of

        return inputs_of(values, self.data.bounds).numpy()

    def candidates(self, each: int, seed: int) -> Candidates:
        """As many members as others, at most ``each``; whoever is in both is left out.

        Raises:
            ValueError: if there is nobody on one side.
        """
        from sfumato.attacks.candidates import Candidates, shared_rows

        (ins, in_labels), (outs, out_labels) = self.data.train, self.data.test
        if not len(out_labels):
            raise ValueError("a test set must be given: examples that were not trained on")
        generator = np.random.default_rng(seed)
        fresh = ~shared_rows(outs, ins)
        outs, out_labels = outs[fresh], out_labels[fresh]
        size = min(validation.count("rows", each), len(in_labels), len(out_labels))
        picked = [generator.choice(len(n), size, replace=False) for n in (in_labels, out_labels)]
        return Candidates.of(
            (self.inputs(ins[picked[0]]), in_labels[picked[0]]),
            (self.inputs(outs[picked[1]]), out_labels[picked[1]]),
        )

    def keep(self, name: str, result: Mapping[str, Any]) -> Path | None:
        """Writes a result into the run's curator folder, if there is a run."""
        if self.folder is None:
            return None
        self.folder.write_curator(name, result)
        return self.folder.curator / name


def attacked(
    run: Path | None,
    model: str | None,
    data: str | None,
    declared: Path | None,
    test: str | None,
    trust: bool,
    *,
    numbers: bool = False,
) -> Attacked:
    """From a command's options: ``run``, or ``model`` and ``data``.

    Labels that are numbers are refused unless ``numbers`` says that they may be.

    Raises:
        ValueError: unless exactly one of ``run`` and ``model`` is given, and data for the latter.
    """
    if (run is None) == (model is None):
        raise ValueError("either --run FOLDER or --model FILE.py:FUNCTION must be given")
    if run is not None:
        return _run(run, data, declared, test, trust, numbers)
    if data is None:
        raise ValueError("--data must be given with --model: what it was trained on")
    assert model is not None
    loaded = _dataset(data, declared, test)
    return Attacked(_own_target(model, loaded.shape), loaded)


def _dataset(data: str, declared: Path | None, test: str | None, numbers: bool = False) -> Dataset:
    from sfumato.data import read_declaration

    known = None if declared is None else read_declaration(declared)
    return _loaded(data, known, test, numbers)


def _loaded(data: str, declared: Declaration | None, test: str | None, numbers: bool) -> Dataset:
    """The data set; attacks are on models of classes.

    Raises:
        ValueError: where labels are numbers, unless ``numbers`` says that they may be.
    """
    from sfumato.cli.train_options import loaded_data

    return loaded_data(data, declared, test, None, numbers=numbers)


def _run(
    path: Path,
    data: str | None,
    declared: Path | None,
    test: str | None,
    trust: bool,
    numbers: bool,
) -> Attacked:
    from sfumato.attacks.targets import Target
    from sfumato.data.first_rows import first_rows
    from sfumato.learning.recipes.loading import PATE, load_run

    run = load_run(path, run_code=trust)
    if data is not None:
        loaded = _dataset(data, declared, test, numbers)
    else:
        if declared is not None:
            raise ValueError("--declared must be given with --data: the run knows its own")
        request = kept_request(run.folder)
        if "source" not in request:
            raise ValueError(f"the run in {path} was begun in Python: say on what with --data")
        source, known = request["source"], kept_declaration(run.folder, request)
        tested = source["test"] if test is None else test
        loaded = _loaded(source["data"], known, tested, numbers)
    target = Target.of_module(run.model, str(path))
    if run.record.method == PATE:
        seen = _taught(run.folder, run.recipe, loaded)
        return Attacked(target, seen, run.claim, run.folder, run.recipe)
    loaded = first_rows(loaded, run.record.facts["data"].get("rows"))
    return Attacked(target, loaded, run.claim, run.folder, run.recipe)


def _taught(folder: RunFolder, recipe: Any, data: Dataset) -> Dataset:
    """Members are the teachers' rows; others are rows that neither teachers nor student saw.

    A student learns from public test rows, too. So others are rows of the training set that were
    left out (--rows), or the test rows that were kept to test on.
    """
    from sfumato.data import Examples
    from sfumato.data.first_rows import first_rows

    source = kept_request(folder).get("source") or {}
    members = first_rows(data, source.get("rows"))
    (inputs, labels), (test_inputs, test_labels) = data.train, data.test
    number = len(members.train.labels)
    if len(labels) - number >= _ENOUGH:
        return replace(members, test=Examples(inputs[number:], labels[number:]))
    if source.get("unlabelled") is not None or recipe.test_rows is None:
        return members
    kept = max(0, len(test_labels) - recipe.test_rows)
    return replace(members, test=Examples(test_inputs[kept:], test_labels[kept:]))


def _own_target(name: str, shape: tuple[int, ...]) -> Target:
    """``my.py:load`` or ``package.my:load``: a function without arguments.

    It returns a torch module (inputs to logits), or a function from NumPy inputs to rows of
    probabilities, or to class numbers; which of the two, it is asked with a blank input.
    """
    from sfumato.attacks.targets import Target
    from sfumato.core.functions import function_named, names_function
    from sfumato.learning.recipes.inputs import input_shape

    file, _, function = name.partition(":")
    module = file.removesuffix(".py").replace("/", ".")
    if not names_function(f"{module}:{function}"):
        validation.fail("model", "FILE.py:FUNCTION, such as my.py:load", name)
    made = function_named("model", f"{module}:{function}")()
    if hasattr(made, "named_parameters"):
        return Target.of_module(made, name)
    if not callable(made):
        validation.fail("model", "a function that returns a torch module or a function", made)

    def answer(inputs: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(made(inputs))

    blank = answer(np.zeros((1, *input_shape(shape)), np.float32))
    return (Target.of_labels if blank.ndim == 1 else Target.of_scores)(answer, name)
