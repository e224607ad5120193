"""The options that say a federation, and the federation that they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.train_options import named_values, option

if TYPE_CHECKING:
    from sfumato.data import Dataset
    from sfumato.federated.federation import Federation
    from sfumato.federated.noises import Noise
    from sfumato.federated.sums import Sums
    from sfumato.federated.works import Work

__all__ = ["Said", "federation_of"]

_WHO, _WORK, _NOISE, _SUM, _MODEL = "Rounds", "Contributions", "Noise", "Sums", "Data and model"


class Said:
    """Types of the options."""

    Data = Annotated[str, option(_MODEL, "mnist, fashion-mnist, cifar10, digits, ... or your own.")]
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
    Records = Annotated[int | None, option(_WORK, "All participants' records together, declared.")]
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
        float | None, option(_NOISE, "Instead: meet this epsilon over all rounds ...")
    ]
    Observer = Annotated[
        str | None,
        option(
            _NOISE,
            "... against this observer: 'released models' or 'server'. By default the server where "
            "participants add the noise.",
        ),
    ]
    Delta = Annotated[float, option(_NOISE, "At which epsilons are stated.")]
    Least = Annotated[
        int | None,
        option(
            _NOISE,
            "The fewest participants in a sum whose noise is unknown to who looks: survivors less "
            "one colluder. By default nine tenths of those expected, less one.",
        ),
    ]
    Law = Annotated[str, option(_NOISE, "Of shared noise: skellam or gaussian.")]
    SumKind = Annotated[
        str,
        option(
            _SUM,
            "plain: the server sees contributions; masked: their sum; hidden: ciphertexts.",
            "--sum",
        ),
    ]
    Threshold = Annotated[
        int | None,
        option(_SUM, "Who must stay for a masked sum; two thirds of the expected by default."),
    ]
    Seed = Annotated[int, option(_MODEL, "Of the initial weights, which are public.")]
    Name = Annotated[str, option(_MODEL, "For people.")]


def federation_of(data: Dataset | None, said: dict[str, Any]) -> Federation:
    """The federation that options say, its noise calibrated if an epsilon is.

    Args:
        data: whose shape and classes; None for an account without data.
        said: by the options' names.
    """
    from sfumato.federated.federation import Federation
    from sfumato.learning.recipes.inputs import input_shape

    shape = (1,) if data is None else input_shape(data.train.inputs.shape[1:])
    classes = 2 if data is None else len(data.classes)
    federation = Federation(
        model=said["model"],
        shape=shape,
        classes=classes,
        participants=said["participants"],
        rounds=said["rounds"],
        work=_work(data, said),
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
    return _calibrated(federation, said)


def _work(data: Dataset | None, said: dict[str, Any]) -> Work:
    from sfumato.federated.works import ClientUpdates, LotGradients, SelectedGradients

    local = {"steps": said["steps"], "batch_size": said["batch_size"], "rate": said["rate"]}
    kind = said["work"]
    if kind == "updates":
        return ClientUpdates(**local, clip=said["clip"], quantile=said["quantile"])
    if kind == "gradients":
        records = said["records"] or (1 if data is None else len(data.train.labels))
        return LotGradients(said["lot_rate"], said["clip"], records)
    if kind == "selected":
        if said["epsilon"] is None:
            raise ValueError("--epsilon must be given for selected gradients: of one upload")
        return SelectedGradients(said["epsilon"], said["share"], said["clip"], **local)
    raise ValueError(f"--work must be updates, gradients or selected, got {kind!r}")


def _noise(said: dict[str, Any]) -> Noise:
    from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise

    kind, first = said["noise"], said["noise_multiplier"] or 1.0
    least = _least(said)
    if said["work"] == "selected" or kind == "none":
        return NoNoise()
    if said["noise_multiplier"] is None and said["epsilon"] is None:
        raise ValueError("--epsilon or --noise-multiplier must be given, or --noise none")
    if kind == "central":
        return CentralNoise(first)
    if kind == "local":
        return LocalNoise(first, least)
    if kind == "shared":
        return SharedNoise(first, least, said["law"])
    raise ValueError(f"--noise must be central, local, shared or none, got {kind!r}")


def _least(said: dict[str, Any]) -> int:
    return said["least"] or max(1, int(0.9 * said["participation"] * said["participants"]) - 1)


def _sums(said: dict[str, Any]) -> Sums:
    from sfumato.federated.sums import HiddenSum, MaskedSum, PlainSum

    kind = said["sum"]
    if kind == "masked" or (kind == "plain" and said["noise"] == "shared"):
        usual = max(2, 2 * said["participants"] // 3 + 1)
        if said["noise"] == "shared":
            usual = max(usual, _least(said) + 1)
        return MaskedSum(said["threshold"] or usual)
    if kind == "plain":
        return PlainSum()
    if kind == "hidden":
        return HiddenSum()
    raise ValueError(f"--sum must be plain, masked or hidden, got {kind!r}")


def _calibrated(federation: Federation, said: dict[str, Any]) -> Federation:
    from sfumato.federated.calibrating import calibrated
    from sfumato.federated.noises import LocalNoise, NoNoise
    from sfumato.federated.views import RELEASED, SERVER

    if said["epsilon"] is None or isinstance(federation.noise, NoNoise):
        return federation
    usual = SERVER if isinstance(federation.noise, LocalNoise) else RELEASED
    return calibrated(federation, said["epsilon"], said["observer"] or usual)


def read_federation(path: Path, **changes: Any) -> Federation:
    """From a file, with what is given on the command line instead."""
    from sfumato.federated.federation import Federation

    return replace(Federation.read(path), **changes)
