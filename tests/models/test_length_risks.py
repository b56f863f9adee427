"""Test predicted failures on tables whose trained rows are known; unknown facts must be listed."""

import io
import json
import math

import pytest
import torch
from refusals import refused
from rich.console import Console
from safetensors.torch import save_file

from posenc.models import inspection, published
from posenc.models.files.errors import ModelError
from posenc.models.layouts import permutation
from posenc.show.report import page
from posenc.show.report.kinds.inspection import phrases, terminal

GPT2 = {"model_type": "gpt2", "n_positions": 512, "n_embd": 32, "n_head": 4, "n_layer": 2}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
}
BERT = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512}


def smooth(rows, width=32):
    steps = torch.randn(rows, width, generator=torch.Generator().manual_seed(0))
    for p in range(1, rows):
        steps[p] = 0.9 * steps[p - 1] + 0.19**0.5 * steps[p]
    return steps


def sines(rows, width=32):
    angle = torch.arange(rows).double()[:, None] * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1).float()


@pytest.fixture
def inspected(tmp_path):
    def inspect(target, config=None, tensors=None):
        if config:
            (tmp_path / "config.json").write_text(json.dumps(config))
        if tensors:
            save_file(tensors, tmp_path / "model.safetensors")
        return inspection.inspect(tmp_path, target, tensors is not None)

    return inspect


TABLE = torch.cat((smooth(384), torch.randn(128, 32) * 0.02))


def test_rows_that_training_has_not_met_break_a_text_that_needs_them(inspected):
    found = inspected(400, GPT2, {"wpe.weight": TABLE})
    assert found.verdict == "breaks"
    assert found.problems == [
        "wpe.weight: the rows of positions 384 … 399 are random, so they are untrained"
    ]
    assert "train on texts of this length first" in found.advice[0]
    assert inspected(384, GPT2, {"wpe.weight": TABLE}).verdict == "fits"
    assert inspected(400, GPT2).verdict == "fits"  # the config does not show untrained rows


def test_the_rows_of_the_weights_count_once_beside_those_of_the_config(inspected):
    found = inspected(1024, GPT2, {"wpe.weight": smooth(512)})
    none = "wpe.weight has 512 rows: positions 512 … 1,023 have no row"
    assert found.problems == [none]
    assert inspected(1024, GPT2).problems == [none.replace("wpe.weight", "the table")]
    fewer = inspected(1024, GPT2, {"wpe.weight": smooth(300)})
    assert [line.split(" has ")[1][:8] for line in fewer.problems] == ["512 rows", "300 rows"]


def test_stored_rows_before_the_first_position_are_not_counted(inspected):
    opt = {"model_type": "opt", "hidden_size": 32, "num_attention_heads": 4, "ffn_dim": 64}
    opt |= {"max_position_embeddings": 510, "num_hidden_layers": 1, "word_embed_proj_dim": 32}
    found = inspected(390, opt, {"model.decoder.embed_positions.weight": TABLE})
    assert "the rows of positions 382 … 389 are" in found.problems[0]


def test_without_a_config_a_table_breaks_past_its_end_and_says_no_more(inspected):
    name = "embeddings.position_embeddings.weight"
    found = inspected(1024, tensors={name: smooth(512)})
    assert found.verdict == "breaks"
    assert found.problems == [f"{name} has 512 rows: positions 512 … 1,023 have no row"]
    found = inspected(400, tensors={name: smooth(512)})
    assert (found.verdict, found.problems) == ("cannot say", [])
    assert found.unknown[0].startswith("the weights have no config")


def test_stored_sines_end_too(inspected):
    found = inspected(100_000, tensors={"position_encoding.pe": sines(384)})
    assert found.verdict == "breaks"
    assert "384 rows: positions 384 … 99,999 have no row, although its" in found.problems[0]
    assert found.advice == [
        "compute 99,616 more rows by its formula, and train on texts of this length"
    ]


def test_a_table_that_fades_is_not_said_to_fit(inspected):
    """The similarity of neighbouring rows falls gradually from row 300 on, as in RXNMapper."""
    noise = torch.randn(512, 32, generator=torch.Generator().manual_seed(1))
    share = ((torch.arange(512) - 300).clamp_min(0) / 150).clamp_max(1)[:, None]
    table = smooth(512) * (1 - share) + 3 * noise * share
    found = inspected(500, GPT2, {"wpe.weight": table})
    assert found.verdict != "fits"
    assert any("falling norms from position" in line for line in found.unknown)
    assert inspected(280, GPT2, {"wpe.weight": table}).verdict == "fits"


def test_a_table_as_it_was_drawn_breaks_at_any_length(inspected):
    found = inspected(2, GPT2, {"wpe.weight": torch.randn(512, 32) * 0.02})
    assert found.problems == ["wpe.weight looks untrained in all rows"]


def test_numbers_that_are_not_finite_leave_it_open(inspected):
    found = inspected(100, GPT2, {"wpe.weight": torch.full((512, 32), torch.nan)})
    assert (found.verdict, found.unknown) == (
        "cannot say",
        ["wpe.weight contains numbers that are not finite"],
    )


def test_a_table_that_the_weights_do_not_show_leaves_it_open(inspected):
    found = inspected(100, GPT2, {"h.0.attn.q_proj.bias": torch.randn(32)})
    assert found.verdict == "cannot say"
    assert "no tensor of a positional encoding was recognised in the weights" in found.unknown
    bias = {"x.relative_attention_bias.weight": torch.randn(32, 4)}
    assert inspected(100, GPT2, bias).unknown == [
        "the config describes a table of 512 rows of 32, which the weights do not contain"
    ]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"max_position_embeddings": None}, "does not state the trained length of its frequencies"),
        ({"model_type": "dinov3_vit"}, "positions are points of an image"),
        (
            {"model_type": "jamba", "num_key_value_heads": 4, "num_hidden_layers": 8},
            "have no encoding, and their quality beyond 2,048 tokens",
        ),
        ({"model_type": "resnet"}, "the layers of 'resnet' that attend to text are unknown"),
    ],
)
def test_what_a_config_leaves_open_is_named(inspected, config, says):
    found = inspected(4096, LLAMA | config)
    assert found.verdict == "cannot say"
    assert any(says in line for line in found.unknown)


def test_an_encoder_beside_the_decoder_is_judged_with_it(inspected):
    config = {
        "model_type": "encoder-decoder",
        "encoder": {"model_type": "bert", "num_hidden_layers": 1, **BERT},
        "decoder": GPT2 | {"n_positions": 2048},
    }
    found = inspected(1024, config)
    assert found.spec.model == "gpt2"
    assert found.problems == ["encoder: the table has 512 rows: positions 512 … 1,023 have no row"]
    assert inspected(512, config).verdict == "fits"


def projections(layout):
    """Return three layers of four heads with 16 channels, with queries correlated with keys."""
    made, g = {}, torch.Generator().manual_seed(0)
    order = permutation(16, 16, layout) if layout == "interleaved" else range(16)
    for n in range(3):
        k = torch.randn(2, 16, 96, generator=g)
        q = torch.randn(4, 16, 96, generator=g) + k.roll(8, 1).repeat_interleave(2, 0)
        for to, rows in zip("qk", (q, k), strict=True):
            rows = rows[:, list(order)].flatten(0, 1)
            made[f"model.layers.{n}.self_attn.{to}_proj.weight"] = rows.contiguous()
    return made


def test_another_layout_than_the_config_has_breaks_at_any_length(inspected):
    config = LLAMA | {"hidden_size": 96, "num_key_value_heads": 2, "head_dim": 16}
    config["num_hidden_layers"] = 3
    assert inspected(64, config, projections("half")).verdict == "fits"
    found = inspected(64, config, projections("interleaved"))
    assert "so rotations are wrong at any length" in found.problems[0]


def test_weights_without_a_config_are_read_when_asked_for(tmp_path):
    save_file({"wpe.weight": smooth(20)}, tmp_path / "model.safetensors")
    with refused(ModelError, "config.json", "--weights"):
        inspection.inspect(tmp_path, 10)


@pytest.mark.parametrize("what", ["rotations", "layers"])
def test_layers_that_differ_in_thousands_of_ways_are_refused(tmp_path, what):
    """Each kind of layer would be measured and printed separately."""
    bases = [1e4 + n for n in range(1000)]
    turning = {"model_type": "granite_swa", "num_hidden_layers": 1000, "layer_rope_theta": bases}
    scaled = {"model_type": "gpt2", "n_layer": 1000, "scale_attn_by_inverse_layer_idx": True}
    config = turning if what == "rotations" else scaled
    (tmp_path / "config.json").write_text(json.dumps(config))
    with refused(ModelError, what, "1,000"):
        inspection.inspect(tmp_path)


@pytest.mark.parametrize(
    ("target", "verdict", "answer"),
    [
        (384, "fits", "No fault is known at 384 tokens; only a test shows how well it reads them."),
        (400, "breaks", "This breaks at 400 tokens:"),
        (512, "breaks", "✗"),
    ],
)
def test_json_and_page_give_the_same_answer(inspected, target, verdict, answer):
    found = inspected(target, GPT2, {"wpe.weight": TABLE})
    told = found.to_json()
    assert (told["verdict"], told["problems"], told["unknown"]) == (verdict, found.problems, [])
    html = page.render(found)
    assert answer in html
    assert ("No fault is known" in html) == (verdict == "fits")
    assert "judged from config.json and the weights" in html


def test_the_page_says_that_nothing_is_recognised(inspected):
    found = inspected(10, tensors={"a.weight": torch.randn(3, 4)})
    html = page.render(found)
    assert "no tensor of positions is recognised" in html
    assert "The files do not show whether it works at 10 tokens:" in html
    assert found.to_json()["verdict"] == "cannot say"


def new_pairs(spec, group, target):
    """Count in loops the pairs with new angles if training ended before context extension."""
    rotary, count = group.turning.rotary, 0
    before = rotary.trained or spec.trained or spec.context
    if rotary.method == "default":
        before = spec.context
    window = group.window or target
    before, used = min(before, window), min(target, window)
    for was, now in zip(rotary.unscaled(), rotary.theta(target), strict=True):
        met = min(1.0, abs(was) * before / (2 * math.pi))
        count += min(1.0, abs(now) * used / (2 * math.pi)) > met + 1e-9
    return count


@pytest.mark.parametrize("name", published.configs())
def test_no_fault_is_never_said_beside_new_angles_at_the_same_length(name):
    """Terminal, page, notebook and data agree, within the context and beyond it."""
    config = published.configs()[name]
    context = inspection.inspect(config).spec.context
    for target in [context, 2 * context] if context else []:
        found = inspection.inspect(config, target, name=name)
        counts = [new_pairs(found.spec, g, target) for g in found.groups if g.turning]
        if any(counts):
            assert found.verdict != "fits"
        console = Console(file=io.StringIO(), width=1000)
        terminal.print_inspection(found, console)
        for said in (console.file.getvalue(), found._repr_html_(), page.render(found)):
            new = "need angles beyond" in said
            assert not (new and ("No fault is known" in said or "tokens: fits" in said))
        assert found.to_json()["verdict"] == found.verdict


def test_a_config_does_not_tell_the_trained_length_of_a_stretched_model():
    """Llama 3.1 has 8,192 tokens before extension, 131,072 after, and factor 8, less than 16.

    `new_pairs` counts the pairs; the original Llama 3 of 8,192 tokens breaks at these lengths.
    """
    name = "Llama-3.1-8B-Instruct"
    config = published.configs()[name]
    found = inspection.inspect(config, 131_072)
    count = new_pairs(found.spec, found.groups[0], 131_072)
    assert (found.verdict, found.problems, count) == ("cannot say", [], 29)
    (unknown,) = found.unknown
    for fact in ("8,192 tokens before context extension", "131,072 after", "29 of 64 pairs"):
        assert fact in unknown
    turning = found.groups[0].turning
    assert (turning.trained, turning.declared) == (8_192, 131_072)
    assert not any("trained 8,192" in line for line in phrases.turning(turning))
    assert inspection.inspect(config, 8_192).verdict == "fits"
    assert inspection.inspect(config, 262_144).verdict == "breaks"
    plain = {"rope_scaling": None, "rope_parameters": None, "max_position_embeddings": 8_192}
    unscaled = inspection.inspect(config | plain, 131_072)
    assert (unscaled.verdict, unscaled.groups[0].turning.declared) == ("breaks", None)
