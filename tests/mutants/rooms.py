"""Which files are mutated, room by room, and which tests must notice.

Tests mirror ``src``: those of ``src/sfumato/a/b.py`` are ``tests/a/test_b.py``. Where a file's law
is tested elsewhere, ``TESTS`` says where; the first that fails ends the run, so the quickest come
first.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["OPTIONS", "ROOMS", "SOURCE", "TESTS", "files_of", "mirrors_of", "room_of"]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sfumato"

ROOMS: dict[str, tuple[tuple[str, ...], int]] = {
    "core": (
        ("core/events/composites.py", "core/events/leaves.py", "core/functions.py",
         "core/gaussian_profile.py", "core/guarantee.py", "core/neighbours.py",
         "core/randomness.py", "core/rates.py", "core/rounding.py", "core/sensitivity.py",
         "core/validation.py"), 20,
    ),
    "mechanisms": (("mechanisms/*.py", "mechanisms/sampling/*.py", "mechanisms/sensitivity/sums.py",
                    "mechanisms/sensitivity/counts.py"), 26),
    "accounting": (("accounting/*.py",), 30),
    "ledger": (
        ("ledger/amounts.py", "ledger/book.py", "ledger/caps.py", "ledger/charges.py",
         "ledger/gate.py", "ledger/lots.py", "ledger/plans.py", "ledger/replay.py",
         "ledger/spending.py", "ledger/state.py", "ledger/store.py", "ledger/tables.py",
         "ledger/turns.py", "ledger/verify.py"), 26,
    ),
    "queries": (
        ("queries/base.py", "queries/bounding.py", "queries/cells.py", "queries/choices.py",
         "queries/facts.py", "queries/fixed_point.py", "queries/local.py", "queries/measures.py",
         "queries/noise.py", "queries/private_keys.py", "queries/protected.py",
         "queries/quantiles.py", "queries/total.py"), 30,
    ),
    "dp_sgd": (
        ("learning/journal.py", *(
            f"learning/dp_sgd/{name}.py" for name in
            ("charging", "clipped_sum", "clipping", "lot_sums", "lots", "noise", "plan",
             "rehearsal", "schedules", "streamed_lots")
        )), 20,
    ),
    "pate": (
        tuple(f"learning/pate/{name}.py" for name in
              ("aggregators", "answering", "ballots", "dealing", "journal", "plan")), 12,
    ),
    "label_dp": (
        tuple(f"learning/label_dp/{name}.py" for name in
              ("alibi", "bins", "charging", "journal", "number_labels", "randomising", "top_k",
               "with_prior")), 12,
    ),
    "erm": (
        tuple(f"learning/erm/{name}.py" for name in
              ("charging", "gamma_noise", "guarding", "losses", "objective", "objective_privacy",
               "output", "rows", "sensitivity")), 12,
    ),
    "audit": (("audit/intervals.py", "audit/guesses.py"), 8),
    "federated": (
        tuple(f"federated/{name}.py" for name in
              ("masked", "noises", "selective", "sums", "views", "integer_noise/encoding",
               "integer_noise/gaussian_sums", "integer_noise/rounding", "integer_noise/shares",
               "secure/masking", "secure/residues", "secure/shamir")), 14,
    ),
    "reports": (("reports/card.py",), 6),
}  # fmt: skip
"""The files of each room, and how many mutants of them are listed, about."""

_EVENTS = ("tests/core/test_events.py",)
_SAMPLING = (
    "tests/mechanisms/sampling/test_rounded.py", "tests/mechanisms/sampling/test_choice.py",
    "tests/mechanisms/sampling/test_precise.py", "tests/mechanisms/sampling/test_laplace.py",
)  # fmt: skip
_LEDGER = (
    "tests/ledger/test_spending.py", "tests/ledger/test_plans_and_refunds.py",
    "tests/ledger/test_verify.py",
)  # fmt: skip
_QUESTIONS = (
    "tests/queries/test_asking.py", "tests/queries/test_sensitivity_of_questions.py",
)  # fmt: skip
_ACCOUNTS = ("tests/accounting/test_laws.py", "tests/accounting/test_curve_and_profile.py")
_MASKS = ("tests/federated/secure/test_secure_numbers.py",
          "tests/federated/secure/test_secure_sums.py")  # fmt: skip
_PATE = ("tests/learning/pate/test_answering.py", "tests/learning/pate/test_run_votes.py")

TESTS: dict[str, tuple[str, ...]] = {
    "core/events/composites.py": _EVENTS,
    "core/events/leaves.py": (*_EVENTS, "tests/accounting/test_laws.py"),
    "core/gaussian_profile.py": (
        "tests/mechanisms/test_gaussian.py", "tests/accounting/test_curve_and_profile.py",
    ),
    "core/functions.py": ("tests/core/test_functions.py",),
    "mechanisms/base.py": ("tests/mechanisms/test_laplace.py", "tests/mechanisms/test_additive.py"),
    **{f"mechanisms/{name}.py": ("tests/mechanisms/test_additive.py",)
       for name in ("discrete_gaussian", "discrete_laplace", "gaussian", "laplace", "skellam")},
    **{f"mechanisms/{name}.py": ("tests/mechanisms/test_selection.py",)
       for name in ("exponential", "noisy_max", "permute_and_flip")},
    "mechanisms/discrete_gaussian_law.py": ("tests/mechanisms/test_discrete_gaussian.py",),
    "mechanisms/skellam_law.py": ("tests/mechanisms/test_skellam.py",),
    "mechanisms/sampling/skellam.py": ("tests/mechanisms/sampling/test_skellam_sampler.py",),
    "mechanisms/sampling/rounded.py": (
        *_SAMPLING, "tests/mechanisms/sampling/test_exact_values.py",
    ),
    "mechanisms/sampling/laplace.py": (
        "tests/mechanisms/sampling/test_laplace.py",
        "tests/mechanisms/sampling/test_exact_values.py",
    ),
    "mechanisms/sensitivity/sums.py": (
        "tests/mechanisms/sensitivity/test_functions.py",
        "tests/mechanisms/sensitivity/test_falsifier.py",
        "tests/mechanisms/sensitivity/test_declared.py",
    ),
    "mechanisms/sensitivity/counts.py": (
        "tests/mechanisms/sensitivity/test_functions.py",
        "tests/mechanisms/sensitivity/test_falsifier.py",
    ),
    "accounting/account.py": (*_ACCOUNTS, "tests/accounting/test_oracles.py"),
    "accounting/atoms.py": (
        "tests/accounting/test_laws.py", "tests/accounting/test_parallel_and_groups.py",
        "tests/accounting/test_exact.py",
    ),
    "accounting/calibrate.py": ("tests/accounting/test_calibrate.py",
                                "tests/accounting/test_curve_and_profile.py"),
    "accounting/curve.py": ("tests/accounting/test_convolution.py",
                            "tests/accounting/test_curve_edges.py",
                            "tests/accounting/test_curve_and_profile.py",
                            "tests/accounting/test_rounding_is_charged.py"),
    "accounting/dpa.py": ("tests/accounting/test_convolution.py",
                          "tests/accounting/test_rounding_is_charged.py",
                          "tests/accounting/test_exact.py"),
    "accounting/gaussian_losses.py": ("tests/accounting/test_parallel_and_groups.py",
                                      "tests/accounting/test_rounding_is_charged.py",
                                      "tests/accounting/test_quadrature.py"),
    "accounting/opaque.py": ("tests/accounting/test_theorems.py",),
    "accounting/pld.py": (
        "tests/accounting/test_convolution.py", "tests/accounting/test_laws.py",
        "tests/accounting/test_parallel_and_groups.py",
        "tests/accounting/test_rounding_is_charged.py", "tests/accounting/test_exact.py",
    ),
    "accounting/rdp.py": (
        "tests/accounting/test_laws.py", "tests/accounting/test_parallel_and_groups.py",
        "tests/accounting/test_exact.py",
    ),
    "accounting/support.py": ("tests/accounting/test_laws.py",),
    "accounting/tradeoff.py": ("tests/accounting/test_curve_and_profile.py",),
    "ledger/book.py": (*_LEDGER, "tests/ledger/test_concurrency.py"),
    "ledger/charges.py": (*_LEDGER, "tests/ledger/test_properties.py"),
    "ledger/plans.py": ("tests/ledger/test_plans_and_refunds.py", "tests/ledger/test_verify.py"),
    "ledger/replay.py": ("tests/ledger/test_replay.py", "tests/ledger/test_verify.py",
                         "tests/ledger/test_lots.py", "tests/ledger/test_turns.py",
                         "tests/ledger/test_tables.py"),
    "ledger/spending.py": (*_LEDGER, "tests/ledger/test_idempotency.py",
                           "tests/ledger/test_resume.py"),
    "ledger/state.py": (*_LEDGER, "tests/ledger/test_caps.py"),
    "ledger/store.py": (*_LEDGER, "tests/ledger/test_caps.py", "tests/ledger/test_damage.py"),
    "ledger/turns.py": ("tests/ledger/test_lots.py", "tests/ledger/test_resume.py"),
    "queries/base.py": ("tests/queries/test_measures.py", "tests/queries/test_asking.py"),
    "queries/choices.py": ("tests/queries/test_private_keys.py", *_QUESTIONS),
    "queries/facts.py": ("tests/queries/test_measures.py", "tests/queries/test_asking.py"),
    "queries/fixed_point.py": ("tests/queries/test_measures.py", *_QUESTIONS),
    "queries/measures.py": (*_QUESTIONS, "tests/queries/test_query_audits.py",
                            "tests/queries/test_statistics_of_answers.py"),
    "queries/noise.py": ("tests/queries/test_measures.py", *_QUESTIONS,
                         "tests/queries/test_query_audits.py",
                         "tests/queries/test_statistics_of_answers.py"),
    "queries/private_keys.py": (*_QUESTIONS, "tests/queries/test_statistics_of_answers.py"),
    "queries/protected.py": (*_QUESTIONS, "tests/queries/test_bounding.py"),
    "queries/quantiles.py": (*_QUESTIONS, "tests/queries/test_statistics_of_answers.py"),
    "queries/total.py": (*_QUESTIONS, "tests/queries/test_non_interference.py"),
    "learning/dp_sgd/charging.py": ("tests/learning/dp_sgd/test_ledger_runs.py",
                                    "tests/learning/dp_sgd/test_resuming_ledger.py"),
    "learning/dp_sgd/rehearsal.py": ("tests/learning/dp_sgd/test_foolers.py",
                                     "tests/learning/dp_sgd/test_wrong_loops.py"),
    "learning/dp_sgd/schedules.py": ("tests/learning/dp_sgd/test_lots.py",
                                     "tests/learning/dp_sgd/test_plan.py",
                                     "tests/learning/dp_sgd/test_noise.py"),
    "learning/pate/journal.py": _PATE,
    "learning/pate/ballots.py": _PATE,
    "learning/pate/dealing.py": ("tests/learning/pate/test_training.py",),
    "learning/pate/plan.py": (*_PATE, "tests/learning/pate/test_training.py"),
    "learning/label_dp/charging.py": ("tests/learning/label_dp/test_training.py",
                                      "tests/learning/label_dp/test_number_runs.py"),
    "learning/label_dp/journal.py": ("tests/learning/label_dp/test_copies.py",
                                     "tests/learning/label_dp/test_training.py"),
    "learning/label_dp/number_labels.py": ("tests/learning/label_dp/test_bins.py",
                                           "tests/learning/label_dp/test_number_privacy.py"),
    "learning/label_dp/randomising.py": ("tests/learning/label_dp/test_training.py",
                                         "tests/learning/label_dp/test_copies.py"),
    "learning/erm/charging.py": ("tests/learning/erm/test_estimators.py",
                                 "tests/learning/erm/test_number_training.py"),
    "learning/erm/objective.py": ("tests/learning/erm/test_objective_privacy.py",
                                  "tests/learning/erm/test_estimators.py",
                                  "tests/learning/erm/test_erm_audits.py"),
    "learning/erm/output.py": ("tests/learning/erm/test_sensitivity.py",
                               "tests/learning/erm/test_estimators.py",
                               "tests/learning/erm/test_erm_audits.py"),
    "audit/guesses.py": ("tests/audit/test_one_run.py", "tests/audit/test_label_noise.py"),
    "federated/noises.py": ("tests/federated/test_views.py", "tests/federated/test_federation.py"),
    "federated/sums.py": ("tests/federated/test_masked.py", "tests/federated/test_hidden.py"),
    "federated/secure/masking.py": _MASKS,
    "federated/secure/residues.py": _MASKS,
    "federated/secure/shamir.py": ("tests/federated/secure/test_secure_shamir.py",),
    "reports/card.py": ("tests/reports/test_card.py", "tests/reports/test_curator.py"),
}  # fmt: skip
"""Where the law of a file is tested, if not, or not only, in the test file that mirrors it."""

OPTIONS = {"ledger": ("-k", "not postgresql")}
"""What pytest is told besides: the same laws in PostgreSQL take minutes and kill no more."""


def files_of(room: str) -> list[str]:
    """The files of a room, below ``src/sfumato``."""
    patterns, _ = ROOMS[room]
    found = {path.relative_to(SOURCE).as_posix() for p in patterns for path in SOURCE.glob(p)}
    return sorted(name for name in found if not name.endswith("__init__.py"))


def room_of(file: str) -> str:
    """The room that a file is of.

    Raises:
        LookupError: if it is in none.
    """
    for room in ROOMS:
        if file in files_of(room):
            return room
    raise LookupError(f"{file} is in no room")


def mirrors_of(file: str) -> list[str]:
    """The test files that must notice a mutant of ``file``, in the order in which they are run."""
    path = Path(file)
    mirror = Path("tests") / path.parent / f"test_{path.stem}.py"
    own = [mirror.as_posix()] if (ROOT / mirror).exists() else []
    found = [*own, *(name for name in TESTS.get(file, ()) if name not in own)]
    if not found:
        raise LookupError(
            f"no tests are named for {file}: add it to TESTS in tests/mutants/rooms.py"
        )
    return found
