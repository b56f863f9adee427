"""The entry point: `python -m posenc`, and which code is run."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import posenc
from posenc.commands import cli
from posenc.commands.app import COMMANDS, GROUPS
from posenc.support import provenance


def test_python_dash_m_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "posenc", "cite", "rope"], capture_output=True, text=True
    )
    assert done.stdout.startswith("@misc{su2021roformer,")


def test_the_command_can_be_pasted(capsys):
    cli.main(["cite", "rope"])
    assert provenance.command_line.get() == "posenc cite rope"
    with pytest.raises(SystemExit):
        cli.main(["show", "two words; rm"])
    assert provenance.command_line.get() == "posenc show 'two words; rm'"


def test_every_python_that_is_begun_ignores_the_working_directory():
    """In the source: whoever names this Python as a command gives it -P first."""
    source = Path(cli.__file__).parents[1]
    for path in source.rglob("*.py"):
        commands = re.findall(r"\[\s*sys\.executable,\s*(\S+)", path.read_text())
        assert set(commands) <= {'"-P",'}, path


def test_configs_and_cards_are_shown_without_torch(tmp_path):
    """The import of torch took 1.9 of 2 s."""
    config = {"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32}
    config |= {"num_hidden_layers": 4, "max_position_embeddings": 40960, "rope_theta": 1e6}
    config |= {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        }
    }
    (tmp_path / "config.json").write_text(json.dumps(config | {"head_dim": 128}))
    script = (
        "import sys; from posenc.commands.cli import main\n"
        f"for words in (['inspect', {str(tmp_path)!r}], ['inspect', {str(tmp_path)!r}, '--json'],\n"
        f"              ['inspect', {str(tmp_path)!r}, '--target', '200000'],\n"
        "              ['show', 'rope'], ['show', 'rope', '--json'], ['show', 'fope_sep_head']):\n"
        "    main(words)\n"
        "    assert not {'torch', 'numpy'} & {*sys.modules}, words"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "yarn ×4 from 32,768 tokens" in done.stdout


@pytest.mark.parametrize(("set_to", "taken"), [(None, "1"), ("2", "2")])
def test_small_work_takes_one_thread_unless_another_number_is_set(set_to, taken):
    """On busy cores, two threads took fifteen times the processor time of one."""
    environment = {name: value for name, value in os.environ.items() if "OMP" not in name}
    environment |= {} if set_to is None else {"OMP_NUM_THREADS": set_to}
    script = (
        "from posenc.commands.cli import main; main(['show', 'alibi', '--measure', '--json'])\n"
        "import sys, torch; print(torch.get_num_threads(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr.strip()) == (0, taken)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP prints its settings")
@pytest.mark.parametrize(("set_to", "taken"), [(None, "PASSIVE"), ("active", "ACTIVE")])
def test_threads_sleep_while_they_wait_unless_the_user_has_set_a_policy(set_to, taken):
    """Reads the settings that OpenMP prints when torch loads it."""
    environment = {name: value for name, value in os.environ.items() if "OMP" not in name}
    environment |= {"OMP_DISPLAY_ENV": "true"}
    environment |= {} if set_to is None else {"OMP_WAIT_POLICY": set_to}
    for words in (["-m", "posenc"], ["-c", "from posenc.commands.cli import main; main()"]):
        done = subprocess.run(
            [sys.executable, *words, "doctor", "--json"],
            capture_output=True, text=True, env=environment,
        )  # fmt: skip
        assert f"OMP_WAIT_POLICY = '{taken}'" in done.stderr
        assert json.loads(done.stdout)["torch"]["waiting"] == (set_to or "passive")


@pytest.mark.parametrize(
    "words",
    [
        ["show", "nosuch"], ["compare", "nosuch"], ["compare", "--wrong"], ["inspect", "none"],
        ["results", "none/"], ["inspect", "none", "--target=no"], ["show", "rope", "alibi"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_went_wrong_is_json_where_that_is_asked_for(posenc, words):
    """The sentence is that of the same command without."""
    code, out, err = posenc(*words)
    assert (code, out) == (2, "")
    as_json = posenc(*words, "--json")
    assert as_json[:2] == (2, "")
    assert json.loads(as_json[2]) == {"error": err.removeprefix("error: ").rstrip(), "code": 2}


def test_one_name_too_many_is_named(posenc):
    said = "error: alibi: too many arguments. See `posenc show --help`.\n"
    assert posenc("show", "rope", "alibi") == (2, "", said)


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "rope", "--text=none.txt"], ["report", "nosuch"], ["results", "none/"],
        ["inspect", "none"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_that_fails_leaves_no_folder(posenc, tmp_path, words):
    assert posenc(*words, "--out", "a/b")[0] == 2
    assert [*tmp_path.iterdir()] == []


def test_help_groups_commands_by_what_they_are_for():
    """In a Python of its own: cyclopts keeps the console of the first help that it prints."""
    shown = subprocess.run(
        [sys.executable, "-m", "posenc", "--help"], capture_output=True, text=True, check=True
    ).stdout
    titles = [group.name for group in GROUPS]
    # Titles stand alone on their lines, in this order
    parts = re.split(rf"(?m)^\W*({'|'.join(titles)})\W*$", shown)
    assert parts[1::2] == titles
    sections = dict(zip(titles, parts[2::2], strict=True))
    for name, declared in COMMANDS.items():
        assert re.search(rf"(?m)^\s*{name}\b", sections[declared.group.name])


def test_a_file_of_the_folder_is_all_that_a_command_needs(tmp_path):
    """A copy of the package with one more file has its command, in its group, with its examples."""
    copy = tmp_path / "posenc"
    shutil.copytree(Path(posenc.__file__).parent, copy)
    (copy / "commands" / "weights.py").write_text(
        "from posenc.commands.app import LOOK, command\n"
        '@command(LOOK, place=9, examples=(("posenc weights", "what it does"),))\n'
        "def weights() -> None:\n"
        '    """Print a word."""\n'
        '    print("weighed")\n'
    )
    for words, said in (["weights"], "weighed"), (["weights", "--help"], "what it does"):
        done = subprocess.run(
            [sys.executable, "-m", "posenc", *words], cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=True,
        )  # fmt: skip
        assert said in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["study", "--help"], ["study"]], ids=" ".join)
def test_help_in_a_pipe_has_no_boxes(words, tmp_path):
    """And `posenc study` alone prints its help, where it once began to train."""
    done = subprocess.run(
        [sys.executable, "-m", "posenc", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: posenc")
    assert not {*"╭╮╰╯│─"} & {*done.stdout}
    assert [*tmp_path.iterdir()] == []
