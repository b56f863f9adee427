"""The examples of each command run, and an unknown command gets a suggestion."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refused

from posenc.commands import cli
from posenc.commands.app import COMMANDS, FIRST

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}


LLAMA |= {"num_hidden_layers": 2, "max_position_embeddings": 2048, "rope_theta": 1e4}


EXAMPLES = {"": FIRST} | {name: declared.examples for name, declared in COMMANDS.items()}
LINES = [line for lines in EXAMPLES.values() for line, _ in lines]


LONG = (
    "compare",
    "report",
    "study",
    "results",
    "convert",
    "explore",
    "vectors",
    "arena",
)  # only read, here


RUN = [line for line in LINES if shlex.split(line)[1] not in LONG]


def words_of(line):
    """The words after `posenc`, without what the shell does with the output."""
    return shlex.split(line.split(" >")[0])[1:]


@pytest.mark.parametrize("command", [name for name in EXAMPLES if name])
def test_each_command_shows_its_own_examples(command, capsys):
    assert command in cli.app
    cli.main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for line, does in EXAMPLES[command]:
        assert " ".join(line.split()) in shown
        assert words_of(line)[0] == command
        assert does in shown


def test_every_command_has_examples():
    assert {name for name in cli.app if name[0] != "-"} == {*COMMANDS}
    assert all(declared.examples for declared in COMMANDS.values())


@pytest.mark.parametrize("line", LINES)
def test_every_example_is_understood(line):
    """cyclopts binds its words to the command: no option or argument is unknown."""
    cli.app.parse_args(words_of(line), print_error=False, exit_on_error=False)


@pytest.mark.parametrize("line", RUN)
def test_an_example_that_is_short_runs(line, tmp_path, monkeypatch, capsys):
    root = Path(__file__).parents[2]
    shutil.copytree(root / "examples", tmp_path / "examples")
    for name in ("model", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("no example opens a browser"))
    words = words_of(line)
    if words[:1] == ["extend"]:
        words = ["4096" if word == "131072" else word for word in words]
        words = ["1024" if word == "32768" else word for word in words]
    cli.main(words)
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("rope", "there is no command `rope`: did you mean `posenc show rope`?"),
        ("Transformer_XL", "did you mean `posenc show transformer-xl`?"),
        ("comprae", "there is no command `comprae`: did you mean `posenc compare`?"),
        ("xyzzy", "there is no command `xyzzy`: `posenc help` lists all commands."),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_one(word, says, capsys):
    for words in ([word], ["help", word]):
        with refused(SystemExit, 2):
            cli.main(words)
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["list"], ["list", "--json"], ["cite", "rope"], ["show", "roap"], ["roap"], ["help"]]
)
def test_what_is_static_does_not_wait_for_torch(words):
    code = (
        "import sys\nfrom posenc.commands import cli\n"
        f"try: cli.main({words})\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1] == "False"
