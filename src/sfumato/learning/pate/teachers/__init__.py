"""Teachers of PATE: disjoint parts, hundreds of models trained as one, one's own, and votes.

One unit more or less changes one teacher only, bit for bit; see :mod:`.training` for why.

    parts = assign_units(ids, teachers=250, salt=kept_salt("curator/salt"))
    recipe = teacher_recipe("linear", shape=(1, 28, 28), classes=10)
    teachers = train_teachers(recipe, inputs, labels, parts)
    votes = votes_of(teachers, queries, classes=10)      # the curator's, until noise is added
"""

from sfumato.learning.pate.teachers.assigning import (
    Parts,
    assign_records,
    assign_units,
    kept_salt,
    new_salt,
)
from sfumato.learning.pate.teachers.own import (
    OwnTeachers,
    checked_votes,
    read_labels,
    read_votes,
    teachers_in,
)
from sfumato.learning.pate.teachers.recipes import TeacherRecipe, recipe_names, teacher_recipe
from sfumato.learning.pate.teachers.schedule import TeacherSchedule
from sfumato.learning.pate.teachers.training import load_teachers, train_teachers
from sfumato.learning.pate.teachers.voting import (
    AnsweringTeachers,
    agreement,
    labels_from_scores,
    plurality,
    teacher_labels,
    votes_from_labels,
    votes_of,
)

__all__ = [
    "AnsweringTeachers",
    "OwnTeachers",
    "Parts",
    "TeacherRecipe",
    "TeacherSchedule",
    "agreement",
    "assign_records",
    "assign_units",
    "checked_votes",
    "kept_salt",
    "labels_from_scores",
    "load_teachers",
    "new_salt",
    "plurality",
    "read_labels",
    "read_votes",
    "recipe_names",
    "teacher_labels",
    "teacher_recipe",
    "teachers_in",
    "train_teachers",
    "votes_from_labels",
    "votes_of",
]
