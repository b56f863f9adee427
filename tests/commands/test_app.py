"""The app: `posenc --help` answers at once."""

import subprocess
import sys


def test_help_does_not_wait_for_torch():
    script = (
        "import sys\n"
        "from posenc.commands import cli\n"
        "cli.main(['--help'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout
