"""The examples of each command are run; what is no command is answered with one."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.commands import cli
from posenc.commands.help import EXAMPLES

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
LLAMA |= {"num_hidden_layers": 2, "max_position_embeddings": 2048, "rope_theta": 1e4}
LINES = [line for lines in EXAMPLES.values() for line, _ in lines]
LONG = ("compare", "report", "bench", "study", "results", "convert", "explore")  # only read, here
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
    assert {name for name in cli.app if name[0] != "-"} <= {*EXAMPLES}


@pytest.mark.parametrize("line", LINES)
def test_every_example_is_understood(line):
    """cyclopts binds its words to the command: no option or argument is unknown."""
    cli.app.parse_args(words_of(line), print_error=False, exit_on_error=False)


@pytest.mark.parametrize("line", RUN)
def test_an_example_that_is_short_runs(line, tmp_path, monkeypatch, capsys):
    root = Path(__file__).parents[2]
    shutil.copytree(root / "examples", tmp_path / "examples")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
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
        ("xyzzy", "there is no command `xyzzy`: `posenc help` names all."),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_one(word, says, capsys):
    for words in ([word], ["help", word]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(words)
        assert says in capsys.readouterr().err


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


@pytest.mark.parametrize("command", ["compare", "inspect model", "bench"])
@pytest.mark.parametrize("option", ["--open", "--figures svg"])
def test_figures_and_open_need_a_page(command, option, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
    words = [*command.split(), *option.split()]
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words, "--malloc", "default"] if command == "bench" else words)
    asked = option.split()[0]
    assert f"{asked} needs a page: name its folder with --out" in capsys.readouterr().err


def test_figures_of_a_model_are_as_wide_as_asked_and_the_page_is_opened(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    cli.main("inspect model --out page --figures svg --width 85 --open".split())
    assert opened == [(tmp_path / "page" / "index.html").as_uri()]
    (svg,) = (tmp_path / "page" / "figures").iterdir()
    points = 72 * round(85 / 25.4 * 100) / 100
    assert (
        f'width="{points:.0f}' in svg.read_text()[:3000]
        or f'width="{points:.4g}' in svg.read_text()
    )
    with pytest.raises(SystemExit, match="2"):
        cli.main("inspect model --out page --figures svg --width 3".split())


def test_lines_of_progress_say_how_many_of_how_many_and_the_time_left(monkeypatch, capsys):
    clock = iter([0.0, 5.0, 20.0, 25.0])
    monkeypatch.setattr(cli.time, "monotonic", lambda: next(clock))
    say = cli._line_every(10.0)
    say("RoPE", 1, 40)
    say("ALiBi", 4, 40)
    say("T5", 5, 40)
    assert capsys.readouterr().err == "4 of 40: ALiBi, about 3 min left\n"
