"""A coordinator's run, as whoever started it sees it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sfumato.federated.flower import apps
from sfumato.federated.flower.leading import LeadFailed, Leading
from sfumato.federated.flower.processes import Started, start
from sfumato.ledger import BudgetExceeded, LedgerError


@pytest.fixture
def superlink(tmp_path: Path):
    process = start("superlink", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path)
    yield process
    process.kill()


def told(folder: Path, error: BaseException) -> None:
    try:
        raise error
    except BaseException as raised:
        apps._tell(folder, "run", "error", apps._described(raised))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (BudgetExceeded("refused: the cap is 3"), "budget", "refused: the cap is 3"),
        (LedgerError("no such dataset"), "value", "no such dataset"),
        (ValueError("holds a finished run"), "value", "holds a finished run"),
        (TimeoutError("2 within 3 s, 3 are needed"), "value", "2 within 3 s, 3 are needed"),
        (KeyError(), "other", "KeyError"),
    ],
)
def test_an_exception_crosses_from_one_process_to_the_other(
    tmp_path: Path, superlink: Started, error: Exception, kind: str, said: str
) -> None:
    told(tmp_path, error)
    with pytest.raises(LeadFailed, match="Traceback") as failed:
        Leading(tmp_path, "run", superlink).wait(5.0)
    assert (failed.value.kind, failed.value.said) == (kind, said)
    assert (tmp_path / "run.error").stat().st_mode & 0o077 == 0
    assert json.loads((tmp_path / "run.error").read_text())["kind"] == kind


def test_who_is_there(tmp_path: Path, superlink: Started) -> None:
    leading = Leading(tmp_path, "run", superlink)
    assert (leading.started, leading.began, leading.present) == (False, False, None)
    for number in (0, 2):
        apps._tell(tmp_path, "run", "present", str(number).encode())
        assert leading.present == number
    with pytest.raises(TimeoutError, match="goes on"):
        leading.wait(0.0)
    (tmp_path / "run.began").touch()
    assert leading.began
    superlink.kill()
    with pytest.raises(RuntimeError, match="without a result"):
        leading.wait(5.0)
