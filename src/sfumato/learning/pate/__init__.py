"""PATE: teachers who never meet, a student who never sees.

Private rows are dealt to many teachers, each unit's to one of them. They vote on public inputs, and
what leaves is a noisy winner for each question: the only thing that depends on private rows. A
student learns from these answers and from public inputs without labels. However often it is asked
afterwards, and whoever looks at its weights, no more is spent.

===================  ============================================================================
``teachers``         who is dealt what; hundreds of models trained as one; votes
``aggregators``      LNMax, GNMax, Confident-GNMax, interactive GNMax
``plan``             how many questions and answers, and what they promise
``answering``        questions asked within a plan and a budget, resumable
``privacy``          what answers cost, for the curator also by what the votes were
``students``         learning from few answers and many public inputs
===================  ============================================================================
"""

from sfumato.learning.pate.aggregators import (
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
)
from sfumato.learning.pate.answering import Answer, Answering, NoMoreAnswers
from sfumato.learning.pate.ballots import Ballots
from sfumato.learning.pate.plan import AnswerPlan

__all__ = [
    "Answer",
    "AnswerPlan",
    "Answering",
    "Ballots",
    "ConfidentMax",
    "GaussianMax",
    "InteractiveMax",
    "LaplaceMax",
    "NoMoreAnswers",
]
