"""The rotations of transformers' own models, held against the published configs."""

import runpy
from pathlib import Path

import pytest

from posenc.models import published

pytestmark = [pytest.mark.slow, pytest.mark.repository]
TOOL = Path(__file__).parent.parent / "tools/engines.py"


def test_every_model_of_transformers_rotates_as_its_config_says():
    """GPT-J has no class of its own for its angles, and an old Phi-3 states no length."""
    found = dict(runpy.run_path(str(TOOL))["cells"]("transformers"))
    assert len(found) == len(published.configs())
    wrong = [name for name, cell in found.items() if not cell.startswith("✓")]
    assert wrong == ["Phi-3-vision-128k-instruct", "GPT-J-6B"]
