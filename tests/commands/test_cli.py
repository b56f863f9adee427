"""The entry point: `python -m posenc`, and which code is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.commands import cli


def test_python_dash_m_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "posenc", "cite", "rope"], capture_output=True, text=True
    )
    assert done.stdout.startswith("@misc{su2021roformer,")


@pytest.mark.slow
def test_nothing_in_the_working_directory_is_run(tmp_path):
    """`posenc bench` begins a second Python, which would look for posenc there first."""
    (tmp_path / "posenc").mkdir()
    (tmp_path / "posenc" / "__init__.py").write_text("raise SystemExit('it was run')")
    command = "import sys; from posenc.commands import cli; cli.main(['bench', 'rotating'])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", command], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, "there is no part 'rotating'" in done.stderr) == (2, True)


def test_every_python_that_is_begun_ignores_the_working_directory():
    """In the source: whoever names this Python as a command gives it -P first."""
    source = Path(cli.__file__).parents[1]
    for path in source.rglob("*.py"):
        commands = re.findall(r"\[\s*sys\.executable,\s*(\S+)", path.read_text())
        assert set(commands) <= {'"-P",'}, path
