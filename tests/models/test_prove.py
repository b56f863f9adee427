"""Test the search on a model trained with a known scaling, and on one that no method helps."""

import json
import re
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
import transformers
from refusals import refused
from small_models import REST, SIZE, TOKENS
from thorough import THOROUGH
from trained_models import slowed, text, trained

from posenc import Remapped
from posenc.encodings.rotary.remaps import dual_chunk, regions, rerope, self_extend
from posenc.models.adapter import applied
from posenc.models.check.loss import bits, opened
from posenc.models.config import specify
from posenc.models.files.errors import ModelError
from posenc.models.prove import ENOUGH, PAIRS, Proof, Way, _bits, prove, remaps, ways

LETTERS = text(4_000, seed=1)
GEMMA_V5 = {
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "head_dim": 64,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "sliding_window": 512,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
    },
}


def script(name):
    """A script of tools/."""
    found = spec_from_file_location(name, Path(__file__).parents[2] / f"tools/{name}.py")
    module = sys.modules[name] = module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return trained("Llama", tmp_path_factory.mktemp("prove") / "llama")


@pytest.fixture(scope="module")
def stretched(tmp_path_factory):
    """Train on 64 tokens with halved angles; the config states 32 tokens and no scaling."""
    return slowed("Llama", tmp_path_factory.mktemp("prove"), 2.0, max_position_embeddings=32)


@pytest.fixture(scope="module")
def proof(stretched):
    """Search at twice the length in the config, which is the trained one."""
    return prove(stretched, 64, LETTERS)


def test_the_way_that_it_was_trained_for_is_chosen(proof):
    assert (proof.chosen, proof.trained, proof.to) == ("linear", 32, 64)
    best = proof.ways[0]
    assert best.far < proof.sliding
    assert [end for end, _ in best.by_position] == [32, 64]
    assert {"as it is", "ntk", "yarn", "llama3", "yarn, searched"} <= {w.name for w in proof.ways}
    assert json.dumps(proof.to_json())


def test_pairs_that_no_formula_of_that_factor_fits_are_searched_for(stretched):
    """For 48 tokens, each formula slows pairs by at most 1.5; the model was trained with 2."""
    proof = prove(stretched, 48, LETTERS)
    assert proof.chosen == PAIRS
    best, told = proof.ways[0], {way.name: way for way in proof.ways}
    assert best.far < min(way.far for name, way in told.items() if name != PAIRS) - ENOUGH
    slower = best.config["rope_parameters"]["long_factor"]
    assert min(slower) >= 1.0
    assert max(slower) > 1.5
    assert specify(best.config).text_stack.global_rotary[0].method == "longrope"


def test_a_search_pair_by_pair_that_finds_nothing_is_a_note(proof):
    assert PAIRS not in {way.name for way in proof.ways}
    assert any(f"{PAIRS}: no better than linear by 0.01" in note for note in proof.notes)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (GEMMA_V5 | dict(layer_types=["sliding_attention"] * 2), "limits every layer"),
        (dict(model_type="gpt2", n_positions=64), "must have rotary layers"),
    ],
    ids=["windows in all layers", "no rotation"],
)
def test_what_has_nothing_to_stretch_is_refused(config, says):
    with pytest.raises(ModelError, match=says):
        ways(config, 8192)


def test_a_base_is_raised_from_that_of_layers_that_see_the_whole_text():
    """The sliding layers of Gemma 3 have base 10,000; ten times that is less than 10⁶."""
    found, notes = ways(GEMMA_V5, 8192)
    assert "base 10,000,000" in found
    assert not notes


def test_in_bfloat16_the_same_way_is_chosen_by_nearly_the_same_losses(stretched, proof):
    rounded = prove(stretched, 64, LETTERS, precision="bfloat16")
    assert rounded.chosen == proof.chosen == "linear"
    assert rounded.precision == rounded.to_json()["precision"] == "bfloat16"
    assert rounded.ways[0].far == pytest.approx(proof.ways[0].far, abs=0.02)
    assert rounded.ways[0].far != proof.ways[0].far


def test_another_precision_is_refused_before_a_model_is_opened(tmp_path):
    with refused(ValueError, "`precision`", "'float32'", "'bfloat16'", "'int8'"):
        prove(tmp_path, 64, precision="int8")


def test_where_nothing_works_it_says_so(llama):
    """The model looks back 12 tokens, so the last 64 suffice, and beyond 64 its angles are new."""
    proof = prove(llama, 256, LETTERS)
    assert proof.chosen == ""
    assert proof.sliding < min(way.far for way in proof.ways)


def test_bits_by_chunks_are_those_of_the_whole(llama, monkeypatch):
    monkeypatch.setattr("posenc.models.prove.CHUNK", 7)
    with opened(llama) as model:
        ids = model.excerpts(LETTERS, 48, 2)
        torch.testing.assert_close(_bits(model.model, ids), bits(model.model, ids))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Cohere", {"logit_scale": 3.0}),
        ("Granite", {"logits_scaling": 0.2}),
        ("Gemma2", {"final_logit_softcapping": 0.3}),
    ],
)
def test_the_loss_has_the_scaling_of_the_model(name, settings, monkeypatch):
    """Held against logits of a whole forward pass, in models that change the head's product."""
    monkeypatch.setattr("posenc.models.prove.CHUNK", 7)
    torch.manual_seed(0)
    sizes = SIZE | REST | TOKENS | {"num_key_value_heads": 2} | settings
    model = getattr(transformers, f"{name}ForCausalLM")
    model = model(getattr(transformers, f"{name}Config")(**sizes)).eval()
    ids = torch.randint(0, model.config.vocab_size, (2, 20))
    forward = model.base_model.forward
    torch.testing.assert_close(_bits(model, ids), bits(model, ids))
    assert model.base_model.forward == forward


def test_a_way_that_a_model_does_not_take_is_a_note(llama):
    config = json.loads((llama / "config.json").read_text())
    config["rope_parameters"] |= dict(rope_type="linear", factor=2.0)
    found, notes = ways(config, 512)
    assert [*found] == ["as it is", "linear"]
    assert any("is 'linear' already" in note for note in notes)


def test_a_length_that_it_serves_already_and_a_short_text_are_refused(llama):
    with refused(ModelError, 64):
        prove(llama, 64, LETTERS)
    with pytest.raises(ModelError, match="must have at least"):
        prove(llama, 4_096, LETTERS)


def test_what_is_no_better_than_a_window_is_not_chosen():
    def proof(far, name="yarn"):
        way = Way(name, far, 1.0, far, [], 0.0, 0.0, {})
        return Proof(32, 64, 2.0, [way], 0, [], {})

    assert proof(1.5).chosen == "yarn"
    assert proof(1.995).chosen == ""
    assert proof(1.5, "as it is").chosen == "as it is"
    assert proof(1.995, "as it is").chosen == ""


# the table of forty cases ------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/extend_cases.md"
cases = script("extend_cases")


def test_a_choice_is_right_where_it_is_the_best_or_as_good():
    bits = {"as it is": 3.0, "yarn": 2.0, "ntk": 2.005}
    case = cases.Case(64, "yarn", bits, 2.5, {})
    assert (case.best, case.right) == ("yarn", True)
    assert replace(case, chosen="ntk").right
    assert not replace(case, chosen="as it is").right
    assert not replace(case, chosen="").right
    nothing = replace(case, sliding=2.005)  # the best is nearer to it than counts
    assert (nothing.best, replace(nothing, chosen="").right, nothing.right) == ("", True, False)


def test_nine_in_ten_of_forty_choices_are_right():
    """`make cases` wrote the page; its counts must equal those of its rows."""
    lines = PAGE.read_text("utf-8").splitlines()
    counts = {k: int(v) for k, v in (x[2:].split(": ") for x in lines if x.startswith("- "))}
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert (len(rows), counts["cases"]) == (40, 40)
    assert (
        counts["cases in which the choice is right"]
        == sum(not line.endswith("wrong |") for line in rows)
        >= 36
    )
    assert counts["cases in which a method helps"] >= 15


def test_the_page_is_that_of_the_stored_results():
    """Counted from the JSON: cases with ReRoPE, Self-Extend and dual chunk, and those they win."""
    record = json.loads(cases.STORE.read_text("utf-8"))
    assert cases.page(record) == PAGE.read_text("utf-8")
    rows = [case for several in record["models"].values() for case in several]
    remapped = [case for case in rows if case["remapped"]]
    assert all([*case["remapped"]] == ["ReRoPE", "Self-Extend", "dual chunk"] for case in remapped)
    saved = [case["sliding"] - min(case["remapped"].values()) for case in remapped]
    helps = [case for case, bits in zip(remapped, saved, strict=True) if bits > ENOUGH]
    wins = [
        case
        for case in helps
        if min(case["remapped"].values()) < min(case["bits"].values()) - ENOUGH
    ]
    text = (PAGE.parent / "models.md").read_text("utf-8")
    assert f"measured in {len(remapped)} of the 40 cases" in text
    of = f"of the {len(remapped)} cases, the best of"
    assert f"In {len(helps)} {of} these three methods saves at least 0.01" in text
    assert f"the last 64 tokens, and at most {max(saved):.3f}" in text
    assert re.search(rf"In {len(wins)} {of} [^.]* is also better than every method", text)


@pytest.mark.slow
@pytest.mark.skipif(not THOROUGH, reason="a model is trained: make thorough")
def test_a_case_of_the_page_comes_out_as_it_says(tmp_path):
    model = cases.MODELS[2]
    (case,) = cases.cases(cases.make(model, tmp_path), factors=(2,))
    assert f"| {model.name} | {case.to} | {case.chosen} | {case.best} |" in PAGE.read_text("utf-8")


def test_methods_without_training_are_measured_and_not_chosen(proof, stretched):
    """Each loss again, by the model with `Remapped` in all layers."""
    assert [way.name for way in proof.remapped] == ["ReRoPE", "Self-Extend", "dual chunk"]
    assert proof.chosen not in {way.name for way in proof.remapped}
    maps = {
        "ReRoPE": rerope(16),
        "Self-Extend": self_extend(4, 16),
        "dual chunk": dual_chunk(24, 4),
    }
    with opened(stretched) as model:
        theta = model.spec.global_rotary[0].frequencies()
        ids = model.excerpts(LETTERS, 64, 32)[1::2]
        for way in proof.remapped:
            encoding = Remapped(theta, maps[way.name], "half")
            with applied(model.model, encoding):
                far = bits(model.model, ids)[:, 31:].mean().item()
            assert way.far == pytest.approx(far, abs=1e-4), way.name
    plain = next(way for way in proof.ways if way.name == "as it is")
    assert min(way.far for way in proof.remapped) < plain.far


def test_no_map_reaches_beyond_the_trained_offsets():
    for to, known in ((128, 64), (192, 64), (512, 64), (100_000, 4096)):
        for name, remap in remaps(to, known).items():
            of, places = regions(remap)
            i, j = torch.tensor([to - 1])[:, None], torch.arange(to)
            new = torch.stack([f(i) - g(j) for f, g in places])
            offset = new.gather(0, of(i, j)[None].long())
            assert 0 <= int(offset.min()) <= int(offset.max()) <= known, (name, to)
