"""Options that several commands have, given well, badly and with malice."""

import json
import os
from itertools import product
from pathlib import Path

import pytest
from refusals import refused

from posenc.commands import cli
from posenc.lab.compare import comparison, portrait


def test_force_writes_beside_what_is_there(posenc, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    code, _, _ = posenc("compare", "nope", "--out", tmp_path, "--force")
    assert code == 0
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "index.html").exists()


@pytest.mark.parametrize(
    "said",
    [
        *("1e400", "nan", "-5", "0", "1.5", "", 2**53 + 1, 10**30, 10**400),
        *("k", "0k", "1.0001k", "nanM", "infk", "1kk", "1G", "9007199254740992k"),
    ],
)
def test_a_length_is_a_whole_number_of_tokens(posenc, tmp_path, said):
    (tmp_path / "config.json").write_text("{}")
    inspect, extend = (
        ["inspect", tmp_path, "--target"],
        ["extend", tmp_path, "--method=ntk", "--to"],
    )
    for words in (inspect, extend):
        code, out, err = posenc(*words, said)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"`{words[-1]}` must be a whole number of tokens" in err
        assert "9,007,199,254,740,992" in err
        assert len(err) < 200


@pytest.mark.slow
def test_a_folder_may_be_called_as_a_terminal_would_be_told(posenc, tmp_path):
    """Markup of rich, or what makes a terminal red."""
    for name in ("a[/b]", "[red]", "\x1b[31m"):
        code, out, _ = posenc("compare", "nope", "--out", tmp_path / name)
        shown = name.replace("\x1b", "\\x1b")
        assert (code, f"{shown}/index.html" in "".join(out.split("\n"))) == (0, True)
        code, _, err = posenc("compare", "--text", tmp_path / name)
        assert (code, err.count("\n"), "\x1b" in err) == (2, 1, False)
        code, _, err = posenc("inspect", tmp_path / name)
        assert (code, err.count("\n"), "\x1b" in err) == (2, 1, False)


LLAMA = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4}
LLAMA |= {"num_hidden_layers": 2, "max_position_embeddings": 2048}
NAMES = [
    "",
    "\0",
    "-",
    "a" * 100_000,
    "\x1b[31m",
    "[red]",
    "../..",
    "\udcff",
    "Nothing",
    "two\nlines",
]
PLACES = ["", "a\0b", "pipe", "loop", "loop/x", "file/x", "b" * 5000, "/dev/null", "/proc/nothing"]
PLACES += ["absent", "\x1b[31m", "[/b]", "\udcff", "~", "absent/x/y", "two\nlines"]
NUMBERS = ["nan", "inf", "-1", "0", "1e308", "1e400", "5e-324", "x", "", "9" * 5000, "1.5", "\0"]
WORDS = ["", "\0", "x", "\x1b", "YARN", "half ", "9" * 5000]
OPTIONS = {  # a command line, in which each hostile value takes the place of None
    "names": (
        NAMES,
        [["show", None], ["cite", None], ["compare", None], ["report", None, "--out=o"]],
    ),
    "files": (
        PLACES,
        [
            ["compare", "nope", "--text", None],
            ["report", "nope", "--out=o", "--text", None],
            ["report", "nope", "--out=o", "--model", None],
            ["inspect", None, "--weights"],
            ["extend", None, "--to=4096", "--method=yarn"],
            ["convert", None, "--layout=half", "--out=new"],
        ],
    ),
    "numbers": (
        NUMBERS,
        [
            ["inspect", "config.json", "--target", None],
            ["extend", "config.json", "--method=yarn", "--to", None],
            ["extend", "config.json", "--method=yarn", "--factor=2", "--trained", None],
        ],
    ),
    "factors": (
        [n for n in NUMBERS if n != "1.5"],
        [["extend", "config.json", "--method=yarn", "--factor", None]],
    ),
    "words": (
        WORDS,
        [
            ["extend", "config.json", "--to=4096", "--method", None],
            ["convert", ".", "--out=new", "--layout", None],
            ["convert", ".", "--out=new", "--layout=half", "--was", None],
            ["report", "nope", "--out=o", "--figures", None],
        ],
    ),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a FIFO")
@pytest.mark.parametrize("kind", OPTIONS)
def test_hostile_values_of_every_option_get_one_line(posenc, tmp_path, monkeypatch, kind):
    """And nothing is measured, nor a file changed."""

    def work(*_, **__):
        raise AssertionError("it began to work")

    for module, name in ((comparison, "compare"), (portrait, "portray")):
        monkeypatch.setattr(module, name, work)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("file").write_text("x")
    Path("config.json").write_text(json.dumps(LLAMA))
    values, commands = OPTIONS[kind]
    for command, value in product(commands, values):
        said = [value if word is None else word for word in command]
        code, out, err = posenc(*said)
        assert (code in (1, 2), out) == (True, ""), said
        assert err.startswith("error: "), said
        assert (err.count("\n"), "\x1b" in err, len(err) < 500) == (1, False, True), said
    assert json.loads(Path("config.json").read_text()) == LLAMA


def test_a_name_that_is_empty_does_not_mean_this_folder(posenc, tmp_path, monkeypatch):
    """An unset variable of the shell, as in `posenc extend "$model" …`."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(LLAMA))
    for words, named in (
        (("extend", "", "--to=4096", "--method=yarn"), "`the path`"),
        (("compare", "nope", "--out", ""), "`--out`"),
    ):
        assert posenc(*words)[2] == f"error: {named} must be a path, got an empty text.\n"
    assert os.listdir() == ["config.json"]


@pytest.mark.parametrize("command", ["compare", "inspect model"])
@pytest.mark.parametrize("option", ["--open", "--figures svg"])
def test_figures_and_open_need_a_page(command, option, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
    words = [*command.split(), *option.split()]
    with refused(SystemExit, 2):
        cli.main(words)
    asked = option.split()[0]
    assert (
        f"`{asked}` needs `--out`, the folder of the page. Add --out FOLDER"
        in capsys.readouterr().err
    )


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
    with refused(SystemExit, 2):
        cli.main("inspect model --out page --figures svg --width 3".split())
