"""``sfumato federate open``: a participant opens the model of a run with hidden sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.output import console

__all__ = ["open_model"]


def open_model(
    file: Annotated[Path, typer.Argument(help="The federation, as all members have it.")],
    sealed: Annotated[Path, typer.Argument(help="model.ckks, from whoever serves.")],
    sum_key: Annotated[Path, typer.Option(help="The participants' secret key.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the weights.")] = Path(
        "model.safetensors"
    ),
) -> None:
    """Opens the model of a run with hidden sums; for participants, who hold the key.

    The server keeps it encrypted, in its folder under run/curator/model.ckks. Keep the weights
    among participants: whoever sees what CKKS decrypts, and knows what went in, can find the key.

    Example:
    sfumato federate open hospitals.json model.ckks --sum-key sums.key -o model.safetensors
    """
    from safetensors.torch import save

    from sfumato.federated.federation import Federation
    from sfumato.federated.secure.ckks_keys import CkksKeys
    from sfumato.federated.trained_models import opened_model
    from sfumato.learning.durable import write_whole

    if out.exists():
        raise ValueError(f"--out must be a new file, but {out} is there")
    federation = Federation.read(file)
    if federation.sums.kind != "hidden":
        raise ValueError(
            f"{file} must be a federation with hidden sums, got {federation.sums.kind}: its model "
            "is in the server's run folder, as model.safetensors"
        )
    model = opened_model(federation, sealed.read_bytes(), CkksKeys(sum_key.read_bytes()))
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    write_whole(out, save(tensors))
    console().print(f"Written to {out}, for participants alone", markup=False, soft_wrap=True)
