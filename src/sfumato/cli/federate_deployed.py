"""``sfumato federate keys, directory, serve, join``: members on machines of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.federate_checking import (
    absolute,
    check_folder,
    check_member_ledger,
    check_public_sum_key,
    check_secret_sum_key,
    check_server_ledger,
    directory_of,
    rounds_sent,
    server_data,
)
from sfumato.cli.federate_endpoints import (
    check_address,
    check_authority,
    check_door,
    check_least,
    check_listening,
    check_nodes,
)
from sfumato.cli.federate_telling import print_trained, views_table
from sfumato.cli.options import AsJson
from sfumato.cli.output import console, print_json

if TYPE_CHECKING:
    from sfumato.federated.federation import Federation
    from sfumato.federated.flower.limits import Limits
    from sfumato.federated.flower.node_folder import NodeFolder
    from sfumato.federated.member_keys import MemberKeys

__all__ = ["directory", "join", "keys", "serve", "sum_key"]

_LEAD = "sfumato.cli.federate_serving:lead"
_MAKE = "sfumato.cli.federate_serving:make"
_NET, _LEDGER, _RUN, _DOOR = "Network", "Ledger", "Run", "Door"
FederationFile = Annotated[Path, typer.Argument(help="The federation file that all agreed on.")]
DirectoryFile = Annotated[
    Path | None, typer.Option(help="Members' public keys, for masked sums.", rich_help_panel=_NET)
]


def keys(
    folder: Annotated[Path, typer.Argument(help="Of one member; private halves stay there.")],
    name: Annotated[str | None, typer.Option(help="Hers; the folder's by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Makes a member's keys, unless they are there.

    node.pub goes to whoever serves; identity.pub into the directory of a federation with masked
    sums.

    Example:
    sfumato federate keys runs/ward --name ward
    """
    from sfumato.federated.member_keys import MemberKeys

    made = MemberKeys.make(folder, name or folder.name)
    told = {"name": made.name, "node": str(made.node_public), "identity": str(made.identity_public)}
    if as_json:
        print_json(told)
        return
    for label, value in told.items():
        console().print(f"{label}: {value}", markup=False, soft_wrap=True)


def directory(
    file: Annotated[Path, typer.Argument(help="Where to write it.")],
    publics: Annotated[list[Path], typer.Argument(help="Members' identity.pub files.")],
) -> None:
    """Writes a directory of members' public keys; every member checks it and keeps a copy.

    Example:
    sfumato federate directory directory.json runs/ward/identity.pub runs/clinic/identity.pub
    """
    from sfumato.federated.member_keys import read_directory, write_directory

    if file.exists():
        raise ValueError(f"file must be a new one, but {file} is there: give another")
    write_directory(file, publics)
    found = read_directory(file)
    members = f"{len(found)} member{'s' * (len(found) != 1)}"
    console().print(f"{members}, fingerprint {found.fingerprint}", markup=False)


def sum_key(
    file: Annotated[Path, typer.Argument(help="The secret key; FILE.pub beside it.")],
) -> None:
    """Makes the key of hidden sums: one participant does, and gives it to the others.

    FILE.pub goes to whoever serves, who must never get FILE.

    Example:
    sfumato federate sum-key sums.key
    """
    from sfumato.federated.secure.ckks_keys import CkksKeys
    from sfumato.learning.durable import write_whole

    if file.exists():
        raise ValueError(f"file must be a new one, but {file} is there: give another")
    made = CkksKeys.generate()
    write_whole(file, made.to_bytes())
    public = file.with_name(file.name + ".pub")
    public.write_bytes(made.public().to_bytes())
    console().print(f"secret: {file}\npublic: {public}", markup=False, soft_wrap=True)


def serve(
    file: FederationFile,
    folder: Annotated[Path, typer.Option(help="All it keeps; again to go on.")],
    node: Annotated[
        list[Path], typer.Option(help="A participant's node.pub; once each.", rich_help_panel=_NET)
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on.", rich_help_panel=_NET)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="0 for a free one, which is kept.", rich_help_panel=_NET)
    ] = 0,
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="Other names by which it is reached.", rich_help_panel=_NET),
    ] = None,
    directory: DirectoryFile = None,
    sum_key: Annotated[
        Path | None,
        typer.Option(help="The public key of hidden sums.", rich_help_panel=_NET),
    ] = None,
    least: Annotated[
        int | None,
        typer.Option(help="Begin when so many are there; all by default.", rich_help_panel=_RUN),
    ] = None,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for them.", rich_help_panel=_RUN)
    ] = 3600.0,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for answers.", rich_help_panel=_RUN)
    ] = 600.0,
    data: Annotated[
        str | None,
        typer.Option(help="A data set whose public test rows draw the curve."),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Charge it, round by round.", rich_help_panel=_LEDGER)
    ] = None,
    dataset: Annotated[str, typer.Option(help="Whose budget in it.", rich_help_panel=_LEDGER)] = "",
    analyst: Annotated[str, typer.Option(help="In whose name.", rich_help_panel=_LEDGER)] = "",
    progress: Annotated[
        bool | None, typer.Option(help="Show rounds.", rich_help_panel=_RUN)
    ] = None,
    most_message: Annotated[
        float, typer.Option(help="MiB of one participant's message.", rich_help_panel=_DOOR)
    ] = 64.0,
    most_connections: Annotated[
        int, typer.Option(help="Connections open at a time.", rich_help_panel=_DOOR)
    ] = 1024,
    most_strangers: Annotated[
        int,
        typer.Option(help="Of those, without a proved key.", rich_help_panel=_DOOR),
    ] = 64,
    admission: Annotated[
        float, typer.Option(help="Seconds in which to prove one.", rich_help_panel=_DOOR)
    ] = 10.0,
    idle: Annotated[
        float,
        typer.Option(help="Seconds without a byte amid a request.", rich_help_panel=_DOOR),
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Coordinates a federation over TLS, among participants whose keys are registered.

    Killed and started again on the same folder it goes on; rounds that were sent stay charged.

    Example:
    sfumato federate serve hospitals.json --folder runs/server --node ward.pub --node clinic.pub
    --data mnist --ledger privacy.db --dataset hospitals
    """
    from sfumato.cli.federate_following import say, shown_end, told_result
    from sfumato.cli.federate_serving import ROUNDS
    from sfumato.core.validation import positive
    from sfumato.federated.federation import Federation
    from sfumato.federated.flower.deployment import Coordinator
    from sfumato.federated.flower.limits import Limits

    federation = Federation.read(file)
    settings = {
        "directory": directory, "sum_key": sum_key, "timeout": timeout, "patience": patience,
        "data": data, "ledger": ledger, "dataset": dataset, "analyst": analyst,
    }  # fmt: skip
    wanted = check_least(federation, least)
    limits = Limits(
        round(positive("most_message", most_message) * 2**20), most_connections, most_strangers,
        admission, idle,
    )  # fmt: skip
    sent = _check_serving(federation, folder, node, host, port, settings, limits)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    transported = folder / "transport"
    with (
        shown_end(lambda: rounds_sent(folder), federation.rounds, transported),
        Coordinator(
            transported, host=host, port=port, hosts=host_name or (), nodes=node, limits=limits
        ) as transport,
    ):
        if not as_json:
            console().print(views_table(federation))
        say(f"serving at {transport.address}, authority {transport.authority}")
        log = (folder / ROUNDS).resolve()
        leading = transport.lead(
            _LEAD, _settings(federation, folder, log, settings), least=wanted, patience=patience
        )
        shown = False if as_json and progress is None else progress
        found = told_result(leading, federation, log, wanted, sent, shown)
    print_trained(federation, found["record"], found["accuracy"], folder / "run", as_json)


def _check_serving(
    federation: Federation, folder: Path, node: list[Path], host: str, port: int,
    settings: dict[str, Any], limits: Limits,
) -> int:  # fmt: skip
    """Refuses whatever cannot end well, before anybody listens; rounds that were sent before."""
    from sfumato.core import validation

    ledger, dataset = settings["ledger"], settings["dataset"]
    check_folder(federation, folder, None if ledger is None else dataset)
    check_nodes(federation, node)
    check_listening(host, port, folder / "transport" / "port")
    validation.positive("timeout", settings["timeout"])
    validation.positive("patience", settings["patience"])
    directory_of(federation, settings["directory"])
    check_public_sum_key(federation, settings["sum_key"])
    sent = rounds_sent(folder)
    check_server_ledger(federation, ledger, dataset, settings["analyst"], sent)
    server_data(federation, settings["data"])
    federation.make_model()
    check_door(federation, limits)
    return sent


def _settings(
    federation: Federation, folder: Path, log: Path, said: dict[str, Any]
) -> dict[str, Any]:
    """What the coordinator's process needs to know."""
    return said | {
        "federation": federation.to_dict(),
        "run": str((folder / "run").resolve()),
        "log": str(log),
        "directory": _resolved(said["directory"]),
        "sum_key": _resolved(said["sum_key"]),
        "ledger": absolute(said["ledger"]),
    }


def _resolved(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def join(
    file: FederationFile,
    keys: Annotated[Path, typer.Option(help="Her folder of keys (sfumato federate keys).")],
    address: Annotated[str, typer.Option(help="host:port of who serves.", rich_help_panel=_NET)],
    authority: Annotated[
        Path, typer.Option(help="The certificate of who serves.", rich_help_panel=_NET)
    ],
    data: Annotated[str, typer.Option(help="Hers: by name, a file, or module:function.")],
    declared: Annotated[Path | None, typer.Option(help="What is public about it.")] = None,
    part: Annotated[
        str | None,
        typer.Option(help="For trials: only part i of n of the data, as i/n, from 0."),
    ] = None,
    partition: Annotated[str, typer.Option(help="How parts are cut.")] = "shards",
    directory: DirectoryFile = None,
    sum_key: Annotated[
        Path | None,
        typer.Option(help="The secret key of hidden sums.", rich_help_panel=_NET),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Hers, charged for every message.", rich_help_panel=_LEDGER)
    ] = None,
    dataset: Annotated[str, typer.Option(help="Whose budget in it.", rich_help_panel=_LEDGER)] = "",
    most_answers: Annotated[
        int | None,
        typer.Option(help="To no more orders than so many.", rich_help_panel=_LEDGER),
    ] = None,
) -> None:
    """Takes part in a federation, until it is interrupted.

    Orders of another federation are refused, and no order is answered twice, also after a crash.

    Example:
    sfumato federate join hospitals.json --keys runs/ward --address lab.example.org:8000
    --authority ca.pem --data patients.parquet --declared patients.toml
    """
    from sfumato.cli.federate_following import say
    from sfumato.cli.federate_serving import make
    from sfumato.federated.federation import Federation
    from sfumato.federated.flower import deployment
    from sfumato.federated.member_keys import MemberKeys
    from sfumato.learning.durable import write_whole

    held, federation = MemberKeys.read(keys), Federation.read(file)
    with _held(keys) as folder:  # nothing is written in it before, and nobody else writes later
        check_address(address)
        check_authority(authority)
        _check_directory(federation, directory, held)
        check_secret_sum_key(federation, sum_key)
        if part is not None and declared is not None:
            raise ValueError(
                "--part must be left out for data of your own: which rows are in a part depends on "
                "all of them. Give a file of her rows"
            )
        limit = check_member_ledger(federation, ledger, dataset)
        plan = {
            "federation": federation.to_dict(),
            "sum_key": _resolved(sum_key),
            "name": held.name,
            "keys": str(keys.resolve()),
            "directory": _resolved(directory),
            "data": data if not Path(data).exists() else str(Path(data).resolve()),
            "declared": _resolved(declared),
            "part": None if part is None else _part(part),
            "partition": partition,
            "ledger": absolute(ledger),
            "dataset": dataset,
            "most_answers": most_answers,
        }
        path = keys / "plan.json"
        write_whole(path, (json.dumps(plan, indent=2) + "\n").encode())  # URLs may be secret
        make({"plan": str(path)}, {})  # whatever is wrong is said here, before she joins
        command, surroundings = deployment.node_command(
            folder, address, authority, held.node, _MAKE, {"plan": str(path.resolve())}
        )
        for text in filter(
            None, [limit, f"{held.name} takes part at {address}; interrupt to leave"]
        ):
            say(text)
        folder.hand_on()
        os.execve(command[0], command, surroundings)  # this process is her node from now on


def _held(keys: Path) -> NodeFolder:
    """Her folder, for this process alone."""
    from sfumato.federated.flower.node_folder import NodeFolder

    try:
        return NodeFolder(keys, "node-files")
    except BlockingIOError:
        raise ValueError(
            f"--keys must be a folder that no other join uses, but somebody takes part with {keys} "
            "now: end that first, or give another member's folder. Nothing was changed"
        ) from None


def _check_directory(federation: Federation, path: Path | None, held: MemberKeys) -> None:
    """Refuses a directory in which she is not, or not with the key that she has."""
    found = directory_of(federation, path)
    if found is None:
        return
    if held.name not in found:
        raise ValueError(
            f"--directory must hold {held.name!r}, but {path} has {', '.join(map(repr, found))}: "
            f"have {held.identity_public} put into it"
        )
    signed = held.identity().sign("self", held.name)
    if not found.verify(held.name, signed, "self", held.name):
        raise ValueError(
            f"--directory must hold the key of {held.name!r} that is in {held.identity_public}, "
            f"but {path} holds another: have that one put into it"
        )


def _part(text: str) -> list[int]:
    number, slash, of = text.partition("/")
    if not slash or not number.isdigit() or not of.isdigit() or not int(number) < int(of):
        raise ValueError(f"--part must be i/n with i below n, such as 0/3, got {text!r}")
    return [int(number), int(of)]
