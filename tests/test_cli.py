"""The commands, as a person types them: what they print, and the exit code."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from thorough import some

from posenc import CATALOG, cli
from posenc.studies import comparison, portrait


@pytest.fixture
def posenc(monkeypatch, capsys, small):
    """posenc("show", "rope") -> (exit code, stdout, stderr); comparisons are small."""
    monkeypatch.setattr(comparison, "Settings", lambda: small)
    monkeypatch.setattr(portrait, "Settings", lambda: small)
    return partial(_run, capsys)


def _run(capsys, *words):
    try:
        cli.main([str(word) for word in words])
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capsys.readouterr()
    return code, out, err


def test_lists_every_encoding(posenc):
    code, out, err = posenc("list")
    assert (code, err) == (0, "")
    assert all(card.slug in out for card in CATALOG)
    _, out, _ = posenc("list", "--json")
    assert [one["name"] for one in json.loads(out)] == [card.slug for card in CATALOG]


def test_shows_an_encoding_however_it_is_spelled(posenc):
    _, out, _ = posenc("show", "Transformer_XL")
    assert "arXiv:1901.02860" in out
    _, out, _ = posenc("show", "rope", "--json")
    assert json.loads(out)["properties"]["shift_invariant"]["holds"] is True


def test_what_is_packaged_is_shown_as_what_is_measured_anew(posenc):
    """But for the last digit of a number, which tests/test_names.py allows for."""
    for name in ("fox", "alibi"):
        packaged, fresh = (
            json.loads(posenc("show", name, "--json", *option)[1]) for option in ([], ["--measure"])
        )
        assert [*packaged] == [*fresh]
        holds = [[f["holds"] for f in one["properties"].values()] for one in (packaged, fresh)]
        assert holds[0] == holds[1]
        assert (packaged["text"], packaged["causal"]) == (fresh["text"], fresh["causal"])
        tables = [posenc("show", name, *option)[1] for option in ([], ["--measure"])]
        assert len({re.sub(r"[\d.,−-]+|\s+", "", table) for table in tables}) == 1


def test_configs_and_cards_are_shown_without_torch(tmp_path):
    """Of 2 s, its import took 1.9."""
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
        "import sys; from posenc.cli import main\n"
        f"for words in (['inspect', {str(tmp_path)!r}], ['inspect', {str(tmp_path)!r}, '--json'],\n"
        f"              ['inspect', {str(tmp_path)!r}, '--target', '200000'],\n"
        "              ['show', 'rope'], ['show', 'rope', '--json']):\n"
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
        "from posenc.cli import main; main(['show', 'alibi', '--measure', '--json'])\n"
        "import sys, torch; print(torch.get_num_threads(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr.strip()) == (0, taken)


def test_cites_a_paper_once(posenc):
    code, out, _ = posenc("cite", "sine", "sinusoidal", "rope")
    assert code == 0
    assert out.count("@misc{") == 2


def test_compares_on_a_text_of_ones_own(posenc, tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("the dog chased another dog . " * 20)
    code, out, _ = posenc("compare", "rope", "nope", "--text", text, "--out", tmp_path / "report")
    assert code == 0
    assert "mine.txt, 120 words" in " ".join(out.split())
    assert "RoPE" in out
    assert "ALiBi" not in out
    held = json.loads((tmp_path / "report" / "results.json").read_text())
    assert held["source"] == "mine.txt"
    assert "mine.txt" in (tmp_path / "report" / "index.html").read_text()


OWN = """from posenc import Encoding


class Mine(Encoding):
    '''Louder: later keys are louder.

        k′ = p k
    '''

    causal = True

    def on_keys(self, k, at):
        return k * at.unsqueeze(-1)


class Breaks(Encoding):
    def on_queries(self, q, at):
        return q / self.nothing


class Refuses(Encoding):
    def on_queries(self, q, at):
        raise ValueError("not these queries")


class Asks(Encoding):
    def __init__(self, tokens):
        super().__init__()
"""


@pytest.mark.slow
def test_an_encoding_of_ones_own_is_shown_compared_and_reported(posenc, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    mine, page = f"{tmp_path}/mine.py:Mine", tmp_path / "page"
    code, out, err = posenc("show", mine)
    assert (code, err) == (0, "")
    masked = "Made for causal attention, and measured under a causal mask: Mine."
    assert "k′ = p k" in out
    assert masked in out
    assert re.search(r"packed texts +✓ +\d comparisons", out)
    _, out, _ = posenc("show", mine, "--json")
    assert json.loads(out)["causal"] is True
    promises = json.loads(out)["promises"]
    assert promises["token by token"]["holds"] is True
    assert (json.loads(out)["name"], json.loads(out)["paper"]) == ("mine", None)
    code, out, _ = posenc("compare", mine, "rope", "--out", page)
    assert code == 0
    assert "Mine" in out
    assert masked in out
    assert "later keys are louder" in (page / "index.html").read_text()
    assert masked in (page / "index.html").read_text()
    code, *_ = posenc("report", mine, "--out", page)
    assert code == 0
    assert json.loads((page / "results.json").read_text())["encodings"][0]["paper"] is None


def test_promises_that_one_of_ones_own_breaks_are_shown_with_their_witness(posenc, tmp_path):
    """A convolution over keys: with a cache, the first key of each call has none before it."""
    lines = (
        "from posenc import Encoding",
        "class Mine(Encoding):",
        "    def on_keys(self, k, at):",
    )
    (tmp_path / "mine.py").write_text("\n".join([*lines, "        return k + k.roll(1, -2)"]))
    code, out, _ = posenc("show", f"{tmp_path}/mine.py:Mine")
    assert code == 0
    assert re.search(r"cache +✗ +token by token with a cache, path", out)
    assert re.search(r"paths +✓", out)
    code, out, _ = posenc("show", "rope")
    assert "packed texts" not in out


@pytest.mark.parametrize(
    ("command", "name", "said"),
    [
        ("show", "Mien", r"mine\.py has no `Mien`\. Did you mean Mine\?"),
        ("show", "Breaks", r"mine\.py, line 18: AttributeError: 'Breaks' object has no attribute"),
        (
            "compare",
            "Breaks",
            r"mine\.py, line 18: AttributeError: 'Breaks' object has no attribute",
        ),
        ("show", "Refuses", r"Refuses could not .* not these queries \(mine\.py, line 23\)"),
        (
            "compare",
            "Asks",
            r"mine\.py:Asks asks for `tokens`, and only `dim`, `heads` and `width`",
        ),
        ("cite", "Mine", r"Mine is an encoding of your own, and has no paper to cite\."),
    ],
)
def test_what_goes_wrong_in_ones_own_encoding_is_one_line(posenc, tmp_path, command, name, said):
    (tmp_path / "mine.py").write_text(OWN)
    code, out, err = posenc(command, f"{tmp_path}/mine.py:{name}")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(rf"^error: .*{said}", err), err


def test_prints_one_document_with_json_and_nothing_else(posenc):
    code, out, _ = posenc("compare", "alibi", "--json")
    assert code == 0
    assert [one["slug"] for one in json.loads(out)["encodings"]] == ["alibi"]


@pytest.mark.slow
def test_looks_closely_and_writes_figures_that_it_knows_again(posenc, tmp_path):
    out = tmp_path / "report"
    for kind in ("svg", "png"):
        code, said, _ = posenc("report", "alibi", "--out", out, "--figures", kind)
        assert code == 0
        assert str(out / "index.html") in "".join(said.split("\n"))
        held = json.loads((out / "results.json").read_text())
        assert held["portrait"]["encodings"][0]["slug"] == "alibi"
        assert held["provenance"]["command"].endswith(f"--figures {kind}")
        assert all((out / "figures" / name).stat().st_size > 1000 for name in held["figures"])
        (out / "figures" / f"alibi-parts.{kind}").rename(out / "figures" / "kept")
        code, _, err = posenc("report", "alibi", "--out", out)
        assert (code, "holds figures, which is not an earlier report" in err) == (2, True)
        (out / "figures" / "kept").unlink()


def test_a_model_that_is_none_is_said_before_anything_is_measured(posenc, tmp_path):
    code, out, err = posenc("report", "--out", tmp_path / "r", "--model", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("error: --model: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "roep", "--out", "new"], "no encoding is called 'roep'. Did you mean rope"),
        (["report", "rope"], "requires an argument"),
        (["report", "--out", "full"], "--out: full holds thesis.tex, which is not an earlier"),
        (["report", "--out", "new", "--figures", "gif"], "gif"),
        (["compare", "roep"], "no encoding is called 'roep'. Did you mean rope"),
        (["show", "xyzzy"], "no encoding is called 'xyzzy'. `posenc list` shows all."),
        (["cite"], "requires an argument"),
        (["compare", "--text", "absent.txt"], "--text: there is no file absent.txt."),
        (["compare", "--text", "empty.txt"], "--text: empty.txt holds 0 words"),
        (["compare", "--text", "binary"], "--text: binary is not a text: it holds zero bytes."),
        (["compare", "--text", "."], "--text: . cannot be read: Is a directory."),
        (["compare", "--out", "full"], "--out: full holds thesis.tex, which is not an earlier"),
        (["compare", "--out", "empty.txt"], "--out: empty.txt is not a folder."),
        (["compare", "--out", "empty.txt/below"], "--out: empty.txt/below cannot be written to"),
        (["compare", "--outt", "x"], "--outt"),
        (["comprae"], "comprae"),
        (["bench", "rotating", "--malloc", "default"], "there is no part 'rotating': name some"),
        (["bench", "--malloc", "cold"], "cold"),
    ],
)
def test_bad_input_gets_one_line_and_2(posenc, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    code, out, err = posenc(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1
    assert (tmp_path / "full" / "thesis.tex").read_text() == "years of work"


@pytest.mark.slow
def test_benchmarks_begin_again_with_warm_memory():
    for malloc in some(("warm", "default"), 2):
        words = ["bench", "embeddings", "--quick", "--json", "--malloc", malloc]
        done = subprocess.run(
            [sys.executable, "-m", "posenc", *words], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["tables"][0]["malloc"] == malloc
        assert found["provenance"]["command"] == f"posenc {' '.join(words)}"


def test_force_writes_beside_what_is_there(posenc, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    code, _, _ = posenc("compare", "nope", "--out", tmp_path, "--force")
    assert code == 0
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "index.html").exists()


def test_an_interruption_is_130_and_leaves_no_half_report(posenc, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "compare", interrupted)
    code, _, err = posenc("compare", "--out", tmp_path)
    assert (code, err) == (130, "interrupted\n")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_1_and_says_so(posenc, tmp_path, monkeypatch):
    from posenc.report import page

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "write", full)
    code, _, err = posenc("compare", "nope", "--out", tmp_path)
    assert code == 1
    said = f"error: {tmp_path} could not be written: No space left on device."
    assert err.splitlines()[-1] == said  # a busy machine is told how far it is before


def test_help_does_not_wait_for_torch():
    script = (
        "import sys\n"
        "from posenc import cli\n"
        "cli.main(['--help'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout


def test_python_dash_m_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "posenc", "cite", "rope"], capture_output=True, text=True
    )
    assert done.stdout.startswith("@misc{su2021roformer,")


@pytest.mark.parametrize("said", ["1e400", "nan", "-5", "0", "1.5", "", 2**53 + 1, 10**30, 10**400])
def test_a_length_is_a_whole_number_of_tokens(posenc, tmp_path, said):
    (tmp_path / "config.json").write_text("{}")
    inspect, extend = (
        ["inspect", tmp_path, "--target"],
        ["extend", tmp_path, "--method=ntk", "--to"],
    )
    for words in (inspect, extend):
        code, out, err = posenc(*words, said)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"`{words[-1]}` is a whole number of tokens from 1 to 9,007,199,254,740,992" in err
        assert len(err) < 200


@pytest.mark.slow
def test_nothing_in_the_working_directory_is_run(tmp_path):
    """`posenc bench` begins a second Python, which would look for posenc there first."""
    (tmp_path / "posenc").mkdir()
    (tmp_path / "posenc" / "__init__.py").write_text("raise SystemExit('it was run')")
    command = "import sys; from posenc import cli; cli.main(['bench', 'rotating'])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", command], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, "there is no part 'rotating'" in done.stderr) == (2, True)


def test_every_python_that_is_begun_ignores_the_working_directory():
    """In the source: whoever names this Python as a command gives it -P first."""
    source = Path(cli.__file__).parent
    for path in source.rglob("*.py"):
        commands = re.findall(r"\[\s*sys\.executable,\s*(\S+)", path.read_text())
        assert set(commands) <= {'"-P",'}, path


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
NAMES = ["", "\0", "-", "a" * 100_000, "\x1b[31m", "[red]", "../..", "\udcff", "None", "two\nlines"]
PLACES = ["", "a\0b", "pipe", "loop", "loop/x", "file/x", "b" * 5000, "/dev/null", "/proc/nothing"]
PLACES += ["absent", "\x1b[31m", "[/b]", "\udcff", "~", "absent/x/y", "two\nlines"]
NUMBERS = ["nan", "inf", "-1", "0", "1e308", "1e400", "5e-324", "x", "", "9" * 5000, "1.5", "\0"]
WORDS = ["", "\0", "x", "\x1b", "YARN", "half ", "9" * 5000]
OPTIONS = {  # a command line, in which each hostile value takes the place of None
    "names": (
        NAMES,
        [["show", None], ["cite", None], ["compare", None], ["report", None, "--out=o"]],
    ),
    "parts": (NAMES, [["bench", "--malloc=default", None]]),
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
            ["bench", "--malloc", None],
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
    """As where a variable of the shell was not set: `posenc extend "$model" …`."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(LLAMA))
    assert posenc("extend", "", "--to=4096", "--method=yarn")[2] == "error: `the path` is empty.\n"
    assert posenc("compare", "nope", "--out", "")[2] == "error: `--out` is empty.\n"
    assert os.listdir() == ["config.json"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["show", "rpoe"], "rope"),
        (["cite", "alibbi"], "alibi"),
        (["compare", "sinusodal"], "sinusoidal"),
        (["report", "deberta-v3", "--out=o"], "deberta"),
        (["show", "learnt"], "learned"),
        (["shwo"], "`posenc show`"),
        (["inspct", "."], "`posenc inspect`"),
        (["compare", "--txt=x"], "--text"),
        (["report", "--ot=x"], "--out"),
    ],
)
def test_a_slip_of_the_keys_is_told_what_was_meant(posenc, words, meant):
    code, _, err = posenc(*words)
    assert (code, f"id you mean {meant}" in err) == (2, True)
