"""Events in, guarantees out.

Notation used inside the maths functions of this room:

==================  =========================================================
``noise_multiplier``  sigma (over the sensitivity); mu = 1/sigma
``sample_rate``       q
``steps``             T
``epsilon, delta``    eps, delta of the whole; (eps, del) of one step
``order``             alpha of a Rényi divergence; lambda = alpha - 1 a moment
==================  =========================================================

Read :mod:`~sfumato.accounting.atoms` first (how events become a flat list), then
:mod:`~sfumato.accounting.account` (which accountant answers), then whichever accountant you need.
"""

from sfumato.accounting.account import Accountant, account, account_many
from sfumato.accounting.calibrate import (
    calibrate,
    calibrate_noise,
    calibrate_sample_rate,
    calibrate_steps,
)
from sfumato.accounting.compare import compare
from sfumato.accounting.curve import epsilon_curve
from sfumato.accounting.sampled_curve import sampled_curve
from sfumato.accounting.selected_curve import Trials, selected_curve
from sfumato.accounting.tradeoff import PrivacyProfile, privacy_profile

__all__ = [
    "Accountant",
    "PrivacyProfile",
    "Trials",
    "account",
    "account_many",
    "calibrate",
    "calibrate_noise",
    "calibrate_sample_rate",
    "calibrate_steps",
    "compare",
    "epsilon_curve",
    "privacy_profile",
    "sampled_curve",
    "selected_curve",
]
