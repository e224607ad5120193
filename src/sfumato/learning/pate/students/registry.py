"""From a student's name to the student."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sfumato.core import validation
from sfumato.learning.pate.students.base import Student
from sfumato.learning.pate.students.fixmatch import FixMatch
from sfumato.learning.pate.students.gan import GAN
from sfumato.learning.pate.students.supervised import Supervised

__all__ = ["describe_student", "make_student", "student_names"]

_STUDENTS: dict[str, tuple[type[Student], str]] = {
    "fixmatch": (FixMatch, "labels the rest by itself where it is sure (arXiv:2001.07685)"),
    "gan": (GAN, "a GAN's discriminator that also classifies, PATE-G (arXiv:1606.03498)"),
    "supervised": (Supervised, "the labelled inputs alone"),
}


def student_names() -> tuple[str, ...]:
    """The names that :func:`make_student` knows, in alphabetical order."""
    return tuple(sorted(_STUDENTS))


def describe_student(name: str) -> str:
    """One line about a student, with its options and their defaults.

    >>> describe_student("gan").partition(";")[0]
    "a GAN's discriminator that also classifies, PATE-G (arXiv:1606.03498)"
    """
    kind, text = _STUDENTS[_known(name)]
    options = ", ".join(f"{field.name}={field.default!r}" for field in fields(kind))
    return f"{text}; options {options}"


def make_student(name: str, **options: Any) -> Student:
    """A student's settings, ready to fit.

    Args:
        name: one of :func:`student_names`.
        options: of that student; see :func:`describe_student`.

    Raises:
        ValueError: for an unknown name or option, or a value out of range.
    """
    kind, _ = _STUDENTS[_known(name)]
    known = [field.name for field in fields(kind)]
    unknown = [option for option in options if option not in known]
    if unknown:
        validation.fail(f"option of {name!r}", f"one of {', '.join(known)}", unknown[0])
    return kind(**options)


def _known(name: str) -> str:
    if name not in _STUDENTS:
        validation.fail("student", f"one of {', '.join(student_names())}", name)
    return name
