"""`posenc help` and `posenc completion`, and what options without a page are told."""

import shutil
import subprocess

import pytest

from posenc.commands import cli


def test_help_is_that_of_the_command(capsys):
    cli.main(["help", "inspect"])
    said = capsys.readouterr().out
    cli.main(["inspect", "--help"])
    assert said == capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell, capsys):
    cli.main(["completion", shell])
    script = capsys.readouterr().out
    for word in ("compare", "inspect", "target", "figures"):
        assert word in script
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=script, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr
