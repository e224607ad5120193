"""Students: networks that learn from public inputs and a few released labels.

    >>> from sfumato.learning.pate.students import make_student, student_names
    >>> student_names()
    ('fixmatch', 'gan', 'supervised')
    >>> student = make_student("fixmatch", steps=2000)

``student.fit(unlabelled, asked, answers)`` gives a network from inputs to logits. A student sees
public inputs and released answers only, so it costs no privacy, and neither does the choice of the
inputs to ask about (:func:`choose`).

==============  ====================================================================================
``supervised``  a small network on the labelled inputs, or a linear layer on wavelets or columns
``gan``         PATE-G's: semi-supervised GAN with feature matching
``fixmatch``    pseudo-labels on changed images, a moving average, doubt about wrong labels
==============  ====================================================================================
"""

from sfumato.learning.pate.students.base import Student
from sfumato.learning.pate.students.fixmatch import FixMatch
from sfumato.learning.pate.students.gan import GAN
from sfumato.learning.pate.students.predicting import accuracy_of, load_student, logits_of
from sfumato.learning.pate.students.registry import (
    describe_student,
    make_student,
    student_names,
)
from sfumato.learning.pate.students.selecting import (
    choose,
    choose_centres,
    choose_random,
    choose_spread,
    choose_typical,
    choose_uncertain,
)
from sfumato.learning.pate.students.supervised import Supervised

__all__ = [
    "GAN",
    "FixMatch",
    "Student",
    "Supervised",
    "accuracy_of",
    "choose",
    "choose_centres",
    "choose_random",
    "choose_spread",
    "choose_typical",
    "choose_uncertain",
    "describe_student",
    "load_student",
    "logits_of",
    "make_student",
    "student_names",
]
