"""README.md: its code runs, and its names and numbers are those of the catalogue and the stores;
SECURITY.md: its names exist; CITATION.cff: it agrees with the package."""

import ast
import contextlib
import inspect
import io
import json
import math
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import torch

import posenc
from posenc import __version__
from posenc.analysis.dials import by_method
from posenc.catalog import CATALOG
from posenc.commands.cli import app
from posenc.core.frequencies import frequencies
from posenc.testing import conform

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
BOOK = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}


def run(text):
    """Run the blocks of Python of a page in order; return their names and their output."""
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        for block in BLOCK.findall(text):
            exec(block, names)
    return names, said.getvalue()


def test_its_python_runs_from_top_to_bottom():
    assert run(README)[0]["out"].shape == (1, 128, 512)


def test_what_it_says_of_a_model_is_what_inspect_says():
    """29 of the pairs of Llama 3's RoPE complete no turn in training."""
    (block,) = (block for block in BLOCK.findall(README) if "inspect" in block)
    *_, call = ast.parse(block).body
    names = {"posenc": posenc}
    exec(block, names)
    inspected = eval(ast.unparse(call), names)
    assert inspected.verdict == "breaks"
    assert inspected.problems[0].startswith("29 of 64 pairs")
    assert "29 of 64 pairs" in inspected._repr_html_()


def test_the_encoding_of_ones_own_is_the_bias_that_it_states():
    """The scores equal ln(1 + distance), by a loop, and the encoding passes `conform`."""
    names, _ = run(README)
    near, at = names["Near"](), torch.tensor([[[0, 1, 5]]])
    bias = near.on_scores(None, None, at, at, 1.0)
    for row, i in enumerate((0, 1, 5)):
        for column, j in enumerate((0, 1, 5)):
            assert bias[0, 0, row, column].item() == pytest.approx(-math.log(1 + abs(i - j)))
    conform(names["Near"])


def test_one_word_swaps_the_encoding():
    quickstart = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    offered = re.findall(r'"([^"]+)"', quickstart)
    assert len(offered) >= 4
    for name in offered:
        names = {}
        exec(quickstart.replace('encoding="rope"', f'encoding="{name}"'), names)
        assert names["out"].shape == (1, 128, 512)


def test_its_table_is_made_from_the_cards():
    table = runpy.run_path(str(ROOT / "tools" / "table.py"))["table"]
    assert table() in BOOK["properties.md"]


@pytest.mark.repository
def test_its_links_lead_somewhere():
    """Links of the other pages are followed where the site is built: tests/test_site.py."""
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_it_is_short_and_leads_into_the_whole_book():
    assert len(README.splitlines()) <= 110
    assert len(README.split()) <= 1_000
    linked = README + (ROOT / "CONTRIBUTING.md").read_text("utf-8") + BOOK["models.md"]
    assert [name for name in BOOK if name not in linked] == []
    for_contributors = {
        "tests.md",
        "families.md",
        "results.md",
        "internals.md",
        "census.md",
        "extend_cases.md",
        "real_weights.md",
    }
    assert [name for name in for_contributors if name in README] == []


def test_all_encodings_are_named_and_counted():
    """By family, against the folders in which their files lie."""
    assert f"{len(CATALOG)} encodings" in README
    lines = re.findall(r"^- [^:]+: (.+)$", README.partition("## The encodings")[2], re.MULTILINE)
    line_of = {name: line for line, names in enumerate(lines) for name in names.split(", ")}
    assert sorted(line_of) == sorted(card.name for card in CATALOG)
    for card in CATALOG:
        fellows = {one.name for one in CATALOG if folder(one) == folder(card)}
        assert {name for name in line_of if line_of[name] == line_of[card.name]} == fellows


def folder(card):
    return Path(inspect.getfile(type(card.make(64, 4)))).parent.name


def test_the_film_of_the_clocks_is_described_as_the_analysis_computes_it():
    """Compare the number of pairs with new angles, as trained and after both extensions."""
    alt = re.search(r"!\[([^\]]*)\]\(docs/pictures/text_grows.gif\)", README)[1]
    found = by_method(frequencies(128, 500_000), 8_192, 131_072)
    new = {way: sum(bool(dial.new > 0) for dial in dials) for way, dials in found.items()}
    assert alt.startswith("Sixty-four circles")
    assert len(found["none"]) == 64
    assert re.findall(r"\d+", alt) == [str(new["none"])]
    assert (new["yarn"], new["interpolate"]) == (0, 0)
    assert "YaRN and PI leave none orange" in alt


def test_torch_without_cuda_is_the_version_that_is_pinned():
    (version,) = re.findall(r"--torch-backend cpu torch==(\S+)$", README, re.MULTILINE)
    assert f"torch=={version}" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()


QUIET = "2026-11-25-xeon-2-threads/attention-rotation-adapter.json"  # the run of docs/speed.md
PEERS = "2026-11-21-epyc-2-threads/rotation.json"  # the run beside other libraries
LONG = "long: (1, 32, 4096, 128), {}, forward"
TINY = "tiny: (1, 32, 1, 128) and (1, 8, 1, 128), float32, forward"


def measured(store, part, case):
    """Return {name: row} of one table of a store of benchmarks."""
    tables = json.loads((ROOT / "benchmarks/results" / store).read_text("utf-8"))["tables"]
    (found,) = [one for one in tables if (one["part"], one["case"]) == (part, case)]
    return {row["name"]: row for row in found["rows"]}


def numbers(name):
    """Return the numbers of one of the reasons to use posenc, as they are written."""
    (line,) = re.findall(rf"^- \*{name}\.\* (.*)$", README, re.MULTILINE)
    return re.findall(r"(?<!\w)\d[\d.,e-]*(?<=\d)(?!\d)", line.replace("float32", ""))


def median(row, unit):
    return f"{row['times']['median'] / unit:.0f}"


@pytest.mark.repository
def test_precision_is_as_measured():
    """Errors as shares of the largest value.

    The store gives transformers the angles of posenc, so its own are computed here, in float64 by
    a complex product.
    """
    single, half = (measured(PEERS, "rotation", LONG.format(x)) for x in ("float32", "bfloat16"))
    rotary, x_transformers = (
        f"{name} (interleaved)" for name in ("rotary-embedding-torch", "x-transformers")
    )
    ours = [row["error"] for name, row in single.items() if name.startswith("posenc")]
    others = [single[rotary]["error"], single[x_transformers]["error"], error_of_transformers()]
    assert len(ours) > 2
    assert 1e-4 < min(others) < max(others) < 2e-4
    sixteen = max(row["error"] for name, row in half.items() if name.startswith("posenc"))
    assert numbers("Precision") == [
        "4,096",
        f"{max(ours):.0e}".replace("e-0", "e-"),
        "1e-4",
        "2e-4",
        f"{sixteen:.1g}",
        f"{half[rotary]['error']:.2g}",
    ]


def error_of_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    shape = {"hidden_size": 128, "num_attention_heads": 1, "rope_theta": 10_000.0}
    generator = torch.Generator().manual_seed(0)
    q, pos = torch.randn(1, 1, 4096, 128, generator=generator), torch.arange(7, 4103)
    tables = llama.LlamaRotaryEmbedding(llama.LlamaConfig(**shape))(q, pos[None])
    rotated, _ = llama.apply_rotary_pos_emb(q, q, *tables)
    theta = 10_000.0 ** (-torch.arange(64, dtype=torch.float64) / 64)
    exact = torch.complex(*q.double().chunk(2, -1)) * torch.polar(
        torch.ones(4096, 64, dtype=torch.float64), pos[:, None] * theta
    )
    exact = torch.cat((exact.real, exact.imag), -1)
    return ((rotated - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.repository
def test_speed_is_as_measured():
    many, one = (measured(QUIET, "rotation", case) for case in (LONG.format("float32"), TINY))
    whole, token = (
        measured(QUIET, "adapter", f"{what}: Llama, 4 layers, 8 heads of 64, 2,048 tokens")
        for what in ("prefill", "one token more")
    )
    half, other = "posenc half: halves", "transformers"
    assert numbers("Speed") == [
        "4,096",
        median(many[half], 1e-3),
        median(many["posenc interleaved: complex"], 1e-3),
        median(many[other], 1e-3),
        median(one[half], 1e-6),
        median(one[other], 1e-6),
        f"{whole['posenc RoPE, half']['ratio']:.2f}",
        f"{token['posenc RoPE, half']['ratio']:.2f}",
    ]


@pytest.mark.repository
def test_memory_is_as_measured():
    case = "forward: 2,048 tokens, 8 heads of 64, float32"
    rows = measured(QUIET, "attention", case)
    ours, tensor = rows["posenc ALiBi"], rows["materialised ALiBi"]
    assert numbers("Memory") == [
        "2,048",
        f"{ours['memory']:.0f}",
        f"{ours['ratio']:.1f}",
        f"{tensor['memory']:.0f}",
        f"{tensor['ratio']:.1f}",
    ]


def test_what_the_security_page_names_is_there():
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    files = re.findall(r"`((?:tests|src)/[\w/.]+)`", page)
    assert len(files) > 1
    assert [name for name in files if not (ROOT / name).exists()] == []
    readers = re.findall(r"\|([^|]*)\|$", page, re.MULTILINE)
    commands = {name.split()[0] for names in readers for name in re.findall(r"`(.+?)`", names)}
    assert {"inspect", "results", "study"} <= commands <= {*app}


def test_it_is_cited_as_what_it_is():
    """`cffconvert --validate` checks the format before a release."""
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    said = dict(re.findall(r'^([\w-]+): "?(.*?)"?$', cited, re.MULTILINE))
    assert (said["version"], said["license"]) == (__version__, about["license"])
    assert re.findall(r'name: "(.*)"', cited) == [author["name"] for author in about["authors"]]
    keywords = re.search(r"^keywords:\n((?:  - .*\n)+)", cited, re.MULTILINE)
    assert keywords
    assert re.findall(r"- (.*)", keywords[1]) == about["keywords"]
    assert f"## {said['version']}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")
