"""Train one Llama for all tests of checks."""

import pytest
from trained_models import trained


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return trained("Llama", tmp_path_factory.mktemp("trained") / "llama")
