"""`posenc help` and `posenc completion`, and options that need a page."""

import re
import shutil
import subprocess

import pytest

from posenc.commands import cli
from posenc.commands.app import COMMANDS


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


@pytest.mark.parametrize("command", [*COMMANDS])
def test_what_a_command_takes_is_called_by_one_name(command, capsys):
    """In the line of its usage and in the list of its arguments."""
    cli.main([command, "--help"])
    usage, *said = capsys.readouterr().out.splitlines()
    assert "ARGS" not in usage
    taken = {word.strip("[].") for word in usage.split()} - {"CHOICE", "OPTIONS"}
    lines = "\n".join(said).partition("─ Arguments")[2].partition("─ Parameters")[0].splitlines()
    listed = [re.match(r"│ (?:\*  )?([A-Z]+)  ", line) for line in lines]
    assert {one[1] for one in listed if one} <= taken
