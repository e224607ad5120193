"""The same task by every private method that suits it: which one to take, at which epsilon.

    found = compare(load_dataset("digits"), epsilons=[1.0, 8.0], out="compared")
    for row in found.rows:
        print(row.method, row.epsilon, row.mean)
    print(found.advice)

Methods differ in where their noise goes:

==========  ====================  =================================================================
group       methods               what is noised
==========  ====================  =================================================================
input       erm-input,            every row, before anything is computed of several
            adaptive-laplace
objective   erm-objective,        what is minimised
            erm-functional,
            functional-network,
            autoencoder
output      erm-output,           what was learnt
            erm-sgd
gradient    dp-sgd,               every step
            dp-sgd-cnn
teachers    pate                  the votes of models that saw a part each
labels      label-dp              the labels alone: another promise, never ranked with others
none        plain                 nothing: what could be had without privacy
==========  ====================  =================================================================

Each is trained by the function that trains it anywhere else, in a folder of its own, with quick
settings that are functions of public facts. Every run is a release: :mod:`.costs` adds them up
before the first one.
"""

from sfumato.learning.comparing.cells import Cell, Plan
from sfumato.learning.comparing.comparison import Comparison, compare
from sfumato.learning.comparing.costs import Cost, costs_of
from sfumato.learning.comparing.registry import method_names
from sfumato.learning.comparing.summary import Row

__all__ = ["Cell", "Comparison", "Cost", "Plan", "Row", "compare", "costs_of", "method_names"]
