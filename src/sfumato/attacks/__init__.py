"""One file an attack. An attack sees what an outsider sees, and never imports what it attacks.

Attacks on models see them through a :class:`Target`:

==================  ===========================================================================
``targets``         what an attacker sees of a model: labels, scores, losses, gradients, weights
``candidates``      examples whose membership is guessed, and the truth about it
``membership``      who was trained on? ``loss_attack``, ``lira_attack``, ... give a
                    :class:`MembershipReport`
``extraction``      a copy of the model: ``extract_by_equations``, ... give a :class:`Stolen`
``inversion``       a picture of each class: ``invert_with_prior``, ... give an
                    :class:`Inversion`
``attributes``      what is missing in a record: ``attribute_attack`` gives an
                    :class:`AttributeResult`
``exposure``        was a planted secret learned by heart?
==================  ===========================================================================

Attacks on collaborative learning see what participants send, or the model they share:

==================  ===========================================================================
``gradients``       the examples behind an update: ``invert_gradient`` gives a
                    :class:`Reconstruction`; what may defend them, and at what cost
``gan``             pictures of another's class, from the model that all train together
==================  ===========================================================================

Attacks on statistics see what was released:

==================  ===========================================================================
``averaging``       one noisy answer, asked again and again
``differencing``    two answers that differ by one person
``tracing``         who is in the data behind many averages?
``linkage``         who is it, by what others know as well?
==================  ===========================================================================

The first argument is the target. An attack that guesses who was trained on takes candidates next
and ends in ``_attack``; one that makes a copy begins with ``extract_by_``, one that makes pictures
with ``invert_``. Random choices follow a ``generator`` given by name; ``confidence`` is that of the
result's intervals; ``classes`` is how many there are, ``labels`` are class numbers. A result says
itself in a line or two, and ``to_dict()`` is for JSON. All of it is for the curator only.

    >>> import numpy as np
    >>> from sfumato.attacks import Candidates, Target, loss_attack
    >>> target = Target.of_scores(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1))
    >>> random = np.random.default_rng(1)
    >>> members, others = random.uniform(0.6, 0.9, (30, 1)), random.uniform(0.4, 0.8, (30, 1))
    >>> people = Candidates.of((members, [0] * 30), (others, [0] * 30))
    >>> loss_attack(target, people).auc > 0.8
    True

Importing the package is light: a name is loaded when it is first used, and what needs torch loads
it then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.lazy import homes, loader

if TYPE_CHECKING:
    from sfumato.attacks.attribute_success import AttributeResult
    from sfumato.attacks.attributes import Attribute, attribute_attack, infer_attribute
    from sfumato.attacks.candidates import Candidates, Overlap
    from sfumato.attacks.extraction.augmentation import extract_by_augmentation
    from sfumato.attacks.extraction.boundary import extract_by_boundary
    from sfumato.attacks.extraction.equations import axis_points, extract_by_equations
    from sfumato.attacks.extraction.fidelity import Exam, Fidelity, FidelityCurve, fidelity_curve
    from sfumato.attacks.extraction.likelihood import extract_by_likelihood
    from sfumato.attacks.extraction.retraining import Training, extract_by_retraining
    from sfumato.attacks.extraction.stolen import Stolen
    from sfumato.attacks.gan.adversary import GanAdversary, GanSettings
    from sfumato.attacks.gan.collaboration import LocalTraining, simulate_collaboration
    from sfumato.attacks.gan.results import GanAttack
    from sfumato.attacks.gradients.defences import (
        Clipping,
        Dropout,
        GaussianNoise,
        LocalSteps,
        PrivateSteps,
        Pruning,
    )
    from sfumato.attacks.gradients.first_layer import read_first_layer
    from sfumato.attacks.gradients.label_recovery import recover_labels
    from sfumato.attacks.gradients.likeness import Likeness, likeness
    from sfumato.attacks.gradients.linear_networks import unmix
    from sfumato.attacks.gradients.matching import Matching, invert_gradient
    from sfumato.attacks.gradients.results import Reconstruction
    from sfumato.attacks.gradients.sharing import SharedUpdate, share_gradient
    from sfumato.attacks.inversion.gradient_prior import invert_with_prior
    from sfumato.attacks.inversion.mi_face import invert_with_mi_face
    from sfumato.attacks.inversion.priors import LearnedPrior, train_autoencoder_prior
    from sfumato.attacks.inversion.results import Inversion
    from sfumato.attacks.inversion.score_prior import invert_by_scores
    from sfumato.attacks.inversion.scoring import Closeness, Recognition, closeness, recognition
    from sfumato.attacks.inversion.slopes import CoordinateDifferences, RandomDirections
    from sfumato.attacks.membership.label_only import gap_attack, robustness_attack
    from sfumato.attacks.membership.learned_gradients import learned_gradient_attack
    from sfumato.attacks.membership.lira import lira_attack
    from sfumato.attacks.membership.reports import MembershipReport
    from sfumato.attacks.membership.rmia import rmia_attack
    from sfumato.attacks.membership.shadow_attack import shadow_attack
    from sfumato.attacks.membership.shadow_outputs import ShadowOutputs, train_shadows
    from sfumato.attacks.membership.thresholds import loss_attack, threshold_attack
    from sfumato.attacks.membership.white_box import gradient_norm_attack, update_attack
    from sfumato.attacks.membership.whitened import whitened_attack
    from sfumato.attacks.targets import BudgetSpent, NotSeen, Target, View

_HOMES = {
    "attribute_success": "AttributeResult",
    "attributes": "Attribute attribute_attack infer_attribute",
    "candidates": "Candidates Overlap",
    "extraction.augmentation": "extract_by_augmentation",
    "extraction.boundary": "extract_by_boundary",
    "extraction.equations": "axis_points extract_by_equations",
    "extraction.fidelity": "Exam Fidelity FidelityCurve fidelity_curve",
    "extraction.likelihood": "extract_by_likelihood",
    "extraction.retraining": "Training extract_by_retraining",
    "extraction.stolen": "Stolen",
    "gan.adversary": "GanAdversary GanSettings",
    "gan.collaboration": "LocalTraining simulate_collaboration",
    "gan.results": "GanAttack",
    "gradients.defences": "Clipping Dropout GaussianNoise LocalSteps PrivateSteps Pruning",
    "gradients.first_layer": "read_first_layer",
    "gradients.label_recovery": "recover_labels",
    "gradients.likeness": "Likeness likeness",
    "gradients.linear_networks": "unmix",
    "gradients.matching": "Matching invert_gradient",
    "gradients.results": "Reconstruction",
    "gradients.sharing": "SharedUpdate share_gradient",
    "inversion.gradient_prior": "invert_with_prior",
    "inversion.mi_face": "invert_with_mi_face",
    "inversion.priors": "LearnedPrior train_autoencoder_prior",
    "inversion.results": "Inversion",
    "inversion.score_prior": "invert_by_scores",
    "inversion.scoring": "Closeness Recognition closeness recognition",
    "inversion.slopes": "CoordinateDifferences RandomDirections",
    "membership.label_only": "gap_attack robustness_attack",
    "membership.learned_gradients": "learned_gradient_attack",
    "membership.lira": "lira_attack",
    "membership.reports": "MembershipReport",
    "membership.rmia": "rmia_attack",
    "membership.shadow_attack": "shadow_attack",
    "membership.shadow_outputs": "ShadowOutputs train_shadows",
    "membership.thresholds": "loss_attack threshold_attack",
    "membership.white_box": "gradient_norm_attack update_attack",
    "membership.whitened": "whitened_attack",
    "targets": "BudgetSpent NotSeen Target View",
}
_HOME = homes(_HOMES)

__all__ = [
    "Attribute",
    "AttributeResult",
    "BudgetSpent",
    "Candidates",
    "Clipping",
    "Closeness",
    "CoordinateDifferences",
    "Dropout",
    "Exam",
    "Fidelity",
    "FidelityCurve",
    "GanAdversary",
    "GanAttack",
    "GanSettings",
    "GaussianNoise",
    "Inversion",
    "LearnedPrior",
    "Likeness",
    "LocalSteps",
    "LocalTraining",
    "Matching",
    "MembershipReport",
    "NotSeen",
    "Overlap",
    "PrivateSteps",
    "Pruning",
    "RandomDirections",
    "Recognition",
    "Reconstruction",
    "ShadowOutputs",
    "SharedUpdate",
    "Stolen",
    "Target",
    "Training",
    "View",
    "attribute_attack",
    "axis_points",
    "closeness",
    "extract_by_augmentation",
    "extract_by_boundary",
    "extract_by_equations",
    "extract_by_likelihood",
    "extract_by_retraining",
    "fidelity_curve",
    "gap_attack",
    "gradient_norm_attack",
    "infer_attribute",
    "invert_by_scores",
    "invert_gradient",
    "invert_with_mi_face",
    "invert_with_prior",
    "learned_gradient_attack",
    "likeness",
    "lira_attack",
    "loss_attack",
    "read_first_layer",
    "recognition",
    "recover_labels",
    "rmia_attack",
    "robustness_attack",
    "shadow_attack",
    "share_gradient",
    "simulate_collaboration",
    "threshold_attack",
    "train_autoencoder_prior",
    "train_shadows",
    "unmix",
    "update_attack",
    "whitened_attack",
]


__getattr__ = loader(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
