"""The options that say a federation, and the federation that they say."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.federate_given import check_given
from sfumato.cli.federate_public import records_of
from sfumato.cli.train_options import named_values, option

if TYPE_CHECKING:
    from sfumato.cli.federate_public import Public
    from sfumato.federated.federation import Federation
    from sfumato.federated.noises import Noise
    from sfumato.federated.sums import Sums
    from sfumato.federated.works import Work

__all__ = ["Said", "federation_of"]

_WHO, _WORK, _NOISE, _SUM, _MODEL = "Rounds", "Contributions", "Noise", "Sums", "Data and model"


class Said:
    """Types of the options."""

    Data = Annotated[
        str, option(_MODEL, "mnist, fashion-mnist, cifar10, digits, labsup or census2000.")
    ]
    Planned = Annotated[
        str,
        option(
            _MODEL,
            "mnist, fashion-mnist, cifar10, digits, labsup, census2000; or your own with "
            "--declared, which is not opened.",
            "--data",
        ),
    ]
    Declared = Annotated[
        Path | None,
        option(
            _MODEL,
            "What is public about data of your own: a .toml or .json file (docs/data.md). Its "
            "records are those of all participants together.",
        ),
    ]
    Model = Annotated[str, option(_MODEL, "By name, or module:function (sfumato train models).")]
    ModelOption = Annotated[
        list[str] | None, option(_MODEL, "Of the model, as name=value.", "--model-option")
    ]
    Participants = Annotated[int, option(_WHO, "N, declared.")]
    Rounds = Annotated[int, option(_WHO, "No more are ever sent.")]
    Participation = Annotated[
        float, option(_WHO, "Probability with which each participant is asked in a round.")
    ]
    ServerRate = Annotated[float, option(_WHO, "What the mean of contributions is times.")]
    ServerMomentum = Annotated[float, option(_WHO, "Of the server's steps.")]
    Kind = Annotated[
        str,
        option(
            _WORK,
            "updates: local training, one client is protected; gradients: a lot's clipped "
            "gradients, one record is; selected: a few noisy numbers (Shokri and Shmatikov).",
        ),
    ]
    Clip = Annotated[float, option(_WORK, "C, of a client's update or of a record's gradient.")]
    Quantile = Annotated[
        float | None, option(_WORK, "Let C follow this quantile of updates' norms.")
    ]
    Steps = Annotated[int, option(_WORK, "Of local training in a round.")]
    BatchSize = Annotated[int, option(_WORK, "Rows of a local step.")]
    Rate = Annotated[float, option(_WORK, "Learning rate of local training.")]
    LotRate = Annotated[float, option(_WORK, "Probability with which a record enters a round.")]
    Records = Annotated[
        int | None,
        option(
            _WORK,
            "All participants' records together, declared; by default what is published or "
            "declared of the data.",
        ),
    ]
    Share = Annotated[float, option(_WORK, "Of the parameters, that selected gradients tell.")]
    NoiseKind = Annotated[
        str,
        option(
            _NOISE,
            "central: the server adds it; local: each participant, in full; shared: each a share, "
            "under a masked sum; none.",
            "--noise",
        ),
    ]
    Multiplier = Annotated[
        float | None, option(_NOISE, "Standard deviation of the noise over C, where it is added.")
    ]
    Epsilon = Annotated[
        float | None,
        option(
            _NOISE,
            "Instead of --noise-multiplier: meet this epsilon over all rounds together ... (For "
            "selected gradients each upload gets its part, epsilon over rounds.)",
        ),
    ]
    Observer = Annotated[
        str | None,
        option(
            _NOISE,
            "... against this observer: 'released models' or 'server'. By default the server where "
            "participants add the noise, released models where the server does.",
        ),
    ]
    Delta = Annotated[float, option(_NOISE, "At which epsilons are stated.")]
    Least = Annotated[
        int | None,
        option(
            _NOISE,
            "The fewest participants in a sum whose noise is unknown to who looks: survivors less "
            "one colluder. For local and shared noise; by default nine tenths of those expected, "
            "less one.",
        ),
    ]
    Law = Annotated[str, option(_NOISE, "Of shared noise: skellam or gaussian.")]
    SumKind = Annotated[
        str,
        option(
            _SUM,
            "plain: the server sees contributions; masked: their sum (always so with shared "
            "noise); hidden: ciphertexts.",
            "--sum",
        ),
    ]
    Threshold = Annotated[
        int | None,
        option(_SUM, "Who must stay for a masked sum; two thirds of the expected by default."),
    ]
    Seed = Annotated[int, option(_MODEL, "Of the initial weights, which are public.")]
    Name = Annotated[str, option(_MODEL, "For people.")]


def federation_of(public: Public | None, said: dict[str, Any], given: frozenset[str]) -> Federation:
    """The federation that options say, its noise calibrated if an epsilon is.

    Args:
        public: what is public about its data; None for an account without data.
        said: by the options' names.
        given: which of them were given, and not left at their defaults.

    Raises:
        ValueError: if options contradict each other, or cannot be.
    """
    from sfumato.federated.federation import Federation

    check_given(said, given)
    _check_numbers(said)
    if "epsilon" in given:
        said = said | {"noise_multiplier": None}
    federation = Federation(
        model=said["model"],
        shape=(1,) if public is None else public.shape,
        classes=2 if public is None else public.classes,
        participants=said["participants"],
        rounds=said["rounds"],
        work=_work(public, said),
        noise=_noise(said),
        sums=_sums(said),
        participation=said["participation"],
        delta=said["delta"],
        server_rate=said["server_rate"],
        server_momentum=said["server_momentum"],
        model_options=named_values("model-option", said["model_option"]),
        seed=said["seed"],
        name=said["name"],
    )
    return _adapting(_calibrated(federation, said), said)


def _check_numbers(said: dict[str, Any]) -> None:
    """What everything else is computed from."""
    from sfumato.core import validation

    validation.count("participants", said["participants"])
    validation.count("rounds", said["rounds"])
    validation.sample_rate("participation", said["participation"])
    for name in ("epsilon", "noise_multiplier"):
        if said[name] is not None:
            shown = "--" + name.replace("_", "-")
            validation.positive(f"{shown} (--noise none for no noise at all)", said[name])


def _work(public: Public | None, said: dict[str, Any]) -> Work:
    from sfumato.federated.works import ClientUpdates, LotGradients, SelectedGradients

    local = {"steps": said["steps"], "batch_size": said["batch_size"], "rate": said["rate"]}
    if said["work"] == "updates":
        return ClientUpdates(**local, clip=said["clip"])  # the quantile: see _adapting
    if said["work"] == "gradients":
        return LotGradients(said["lot_rate"], said["clip"], records_of(public, said))
    if said["epsilon"] is None:
        raise ValueError("--epsilon must be given with --work selected: of all uploads together")
    each = _part(said["epsilon"], said["rounds"])
    return SelectedGradients(each, said["share"], said["clip"], **local)


def _part(epsilon: float, rounds: int) -> float:
    """What each of ``rounds`` uploads may cost, so that together they cost ``epsilon`` at most.

    Rounded down to twelve digits, and to what a ledger counts in.
    """
    context = Context(prec=12, rounding=ROUND_DOWN)
    each = context.divide(Decimal(repr(epsilon)), Decimal(rounds))
    counted = each.quantize(Decimal("1e-12"), ROUND_DOWN) if each < 1 else each
    return float(counted)


def _adapting(federation: Federation, said: dict[str, Any]) -> Federation:
    """With a clip norm that adapts, which costs nothing: so the noise was found without it."""
    if said["quantile"] is None or said["work"] != "updates":
        return federation
    work = replace(federation.work, quantile=said["quantile"])  # type: ignore[call-arg]
    return replace(federation, work=work)


def _noise(said: dict[str, Any]) -> Noise:
    from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise

    kind, least = said["noise"], _least(said)
    if said["work"] == "selected" or kind == "none":
        return NoNoise()
    first = 1.0 if said["noise_multiplier"] is None else said["noise_multiplier"]
    if kind == "central":
        return CentralNoise(first)
    if kind == "local":
        return LocalNoise(first, least)
    return SharedNoise(first, least, said["law"])


def _least(said: dict[str, Any]) -> int:
    if said["least"] is not None:
        return said["least"]
    return max(1, int(0.9 * said["participation"] * said["participants"]) - 1)


def _sums(said: dict[str, Any]) -> Sums:
    from sfumato.federated.sums import HiddenSum, MaskedSum, PlainSum

    kind, shared = said["sum"], said["noise"] == "shared" and said["work"] != "selected"
    if kind == "hidden":
        return HiddenSum()
    if kind == "plain" and not shared:
        return PlainSum()
    if said["threshold"] is not None:
        return MaskedSum(said["threshold"])
    usual = max(2, 2 * said["participants"] // 3 + 1)
    return MaskedSum(max(usual, _least(said) + 1) if shared else usual)


def _calibrated(federation: Federation, said: dict[str, Any]) -> Federation:
    from sfumato.federated.calibrating import calibrated
    from sfumato.federated.noises import LocalNoise, NoNoise
    from sfumato.federated.views import RELEASED, SERVER

    usual = SERVER if isinstance(federation.noise, LocalNoise) else RELEASED
    observer = usual if said["observer"] is None else said["observer"]
    federation.view(observer)  # or says that there is none
    if isinstance(federation.noise, NoNoise):
        return federation
    if said["epsilon"] is not None:
        return calibrated(federation, said["epsilon"], observer)
    if said["noise_multiplier"] is None:
        raise ValueError("--epsilon or --noise-multiplier must be given, or --noise none")
    return federation
