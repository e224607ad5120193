"""Every claim is audited once for all tests of this folder."""

import pytest

from sfumato.audit.claims import run_claims


@pytest.fixture(scope="session")
def results():
    return {result.claim.name: result for result in run_claims()}
