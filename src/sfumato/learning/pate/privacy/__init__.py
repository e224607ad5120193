"""What PATE's answers cost: for all data, for the data at hand, and how to publish the latter.

One unit lies in one teacher's part, so a neighbour step moves one vote from one class to another.

==========================  ======================================================================
module                      what
==========================  ======================================================================
:mod:`.laplace`             LNMax: pure 2 gamma, and less where teachers agree
:mod:`.gaussian`            GNMax: alpha / sigma^2, and less where teachers agree
:mod:`.confident`           checks of Confident-GNMax and Interactive GNMax
:mod:`.local`               how fast a data-dependent cost changes with the data
:mod:`.smooth`              publishing a data-dependent cost, with noise and with its own cost
:mod:`.planning`            before: how many answers for an epsilon, from assumed agreement
:mod:`.assumed`             the agreement that is assumed: a guess, or as measured on public data
:mod:`.choosing`            before: how many teachers, which noise
:mod:`.effect`              more teachers, more privacy, less accuracy, on public data
:mod:`.curator`             after, for the curator only: agreement and epsilon of real votes
==========================  ======================================================================

Budgets are charged by the data-independent cost. Data-dependent numbers are private: they stay with
the curator, or leave through :class:`Sanitiser`.
"""

from sfumato.learning.pate.privacy.assumed import Assumed, mnist_agreement
from sfumato.learning.pate.privacy.choosing import best_of, for_answers, for_certainty
from sfumato.learning.pate.privacy.confident import checked_independent, checked_rdp, compared
from sfumato.learning.pate.privacy.costs import run_event
from sfumato.learning.pate.privacy.curator import CuratorView, agreement, curator_view
from sfumato.learning.pate.privacy.effect import TeachersEffect, teachers_effect
from sfumato.learning.pate.privacy.gaussian import gaussian_independent, gaussian_rdp
from sfumato.learning.pate.privacy.laplace import laplace_independent, laplace_rdp
from sfumato.learning.pate.privacy.local import Answers, Checks, check_conditions
from sfumato.learning.pate.privacy.planning import (
    Forecast,
    PlannedCost,
    epsilon_after,
    explore,
    least_noise,
    most_answers,
    planned_cost,
)
from sfumato.learning.pate.privacy.smooth import (
    PublishedCost,
    Sanitiser,
    choose_sanitiser,
    smooth_sensitivity,
)

__all__ = [
    "Answers",
    "Assumed",
    "Checks",
    "CuratorView",
    "Forecast",
    "PlannedCost",
    "PublishedCost",
    "Sanitiser",
    "TeachersEffect",
    "agreement",
    "best_of",
    "check_conditions",
    "checked_independent",
    "checked_rdp",
    "choose_sanitiser",
    "compared",
    "curator_view",
    "epsilon_after",
    "explore",
    "for_answers",
    "for_certainty",
    "gaussian_independent",
    "gaussian_rdp",
    "laplace_independent",
    "laplace_rdp",
    "least_noise",
    "mnist_agreement",
    "most_answers",
    "planned_cost",
    "run_event",
    "smooth_sensitivity",
    "teachers_effect",
]
