"""The pages against a browser and axe-core's reading of WCAG 2 A and AA."""

import dataclasses
import json

import pytest
from small_models import saved

from posenc.analysis import reading
from posenc.analysis.text import parse
from posenc.models import inspection
from posenc.report import page

TEXT = parse("dogs", "the old dog chased another dog until the cat chased it away again .\n\n" * 8)
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
    "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(everything, portrait, tmp_path_factory):
    """Folders of the pages of each command; `all` holds every encoding."""
    out = tmp_path_factory.mktemp("pages")
    config = out / "config.json"
    config.write_text(json.dumps(LLAMA))
    model = saved("Llama", out / "model", TEXT.words)
    read = dataclasses.replace(portrait, reading=reading.read(model, TEXT))
    few = [one for one in everything.encodings if one.slug in ("nope", "deberta", "rope")]
    for name, result in (
        ("all", everything),
        ("compare", dataclasses.replace(everything, encodings=few)),
        ("inspect", inspection.inspect(config, 200_000)),
        ("report", read),
    ):
        (out / name).mkdir()
        page.write(result, out / name)
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["compare", "inspect", "report"])
def test_in_both_themes_everybody_can_read_it(pages, visit, name, scheme):
    seen = visit(pages / name / page.PAGE, scheme)
    assert seen.said == []
    assert seen.empty == []
    assert seen.violations == []


@pytest.mark.parametrize("name", ["all", "inspect", "report"])
def test_opens_alone_and_soon(pages, visit, name):
    path = pages / name / page.PAGE
    seen = visit(path, axe=False)
    print(f"{name}: {path.stat().st_size / 2**20:.1f} MiB in {seen.seconds:.1f} s")
    assert path.stat().st_size < 10 * 2**20
    assert seen.seconds < 3
    assert seen.asked == seen.said == seen.empty == []


@pytest.mark.parametrize("name", ["compare", "inspect", "report"])
def test_on_a_phone_nothing_sticks_out(pages, visit, name):
    assert visit(pages / name / page.PAGE, width=400, axe=False).wide <= 0
