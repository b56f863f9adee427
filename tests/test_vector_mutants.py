"""Faults in the code of θ and position ids: the record, and what the docs state of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.vector_mutants import ROOT, _key, faults

RECORD = json.loads((ROOT / "tests/vector_mutants.json").read_text("utf-8"))
FAULTS = RECORD["faults"]


def test_the_docs_state_what_the_vectors_notice():
    planted = [fault for fault in FAULTS if "equivalent" not in fault]
    noticed = sum(bool(fault["noticed"]) for fault in planted)
    text = " ".join((ROOT / "docs/tests.md").read_text("utf-8").split())
    assert len(FAULTS) >= 60
    assert noticed >= 0.95 * len(planted)
    assert f"Of {len(FAULTS)} faults of seed {RECORD['seed']}" in text
    assert f"{len(FAULTS) - len(planted)} change no number" in text
    assert f"{noticed} of the other {len(planted)}" in text


def test_a_fault_without_effect_has_its_reason():
    for fault in FAULTS:
        assert (ROOT / fault["file"]).is_file()
        assert not (fault["noticed"] and "equivalent" in fault)


def test_a_fault_keeps_its_reason_when_lines_above_it_change():
    """The key of a fault has the text of its line, and not the number."""
    one = FAULTS[0]
    assert _key(one | {"line": one["line"] + 7}) == _key(one)
    assert len({*map(_key, FAULTS)}) == len(FAULTS)
    assert all(fault["before"] in fault["text"] for fault in FAULTS)


def test_faults_are_planted_where_numbers_are_computed():
    found = {(Path(one.file).name, one.before, one.after) for one in faults()}
    assert ("frequencies.py", "/", "*") in found
    assert ("multimodal.py", "+", "-") in found
    lines = (ROOT / "src/posenc/core/frequencies.py").read_text("utf-8").splitlines()
    named = {lines[one.line - 1].strip() for one in faults() if one.file.endswith("frequencies.py")}
    assert 'return positive(base, "base") ** (-index / dim)' in named
    assert not any(line.startswith(("raise", "if freqs.ndim not in")) for line in named)


@pytest.mark.slow
def test_a_planted_fault_is_noticed(tmp_path):
    """Run in a process of its own, in which posenc is not imported yet."""
    code = (
        "from pathlib import Path; import tools.vector_mutants as tool;"
        f"folder = Path({str(tmp_path / 'vectors')!r});"
        "assert tool.in_process(lambda: tool._written(folder)) == '';"
        "one = next(m for m in tool.faults() if m.file.endswith('core/frequencies.py')"
        " and (m.before, m.after) == ('/', '*'));"
        "print(tool.noticed_by(one, folder))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "theta" in ran.stdout or "differs" in ran.stdout
