"""Test measurements of small files with known tables, biases and projections."""

import io
import json
import math
import tracemalloc

import gguf
import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file
from weight_files import sentences

from posenc.analysis import rotary_pairs
from posenc.compat.threads import threads
from posenc.models.config import specify
from posenc.models.files.folder import find_files
from posenc.models.layouts import permutation
from posenc.models.weight_measurements import layout_evidence, measure_weights
from posenc.models.weights import open_weights
from posenc.show.report.kinds.inspection.weights import figures, terminal

LLAMA = {
    "model_type": "llama",
    "hidden_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "max_position_embeddings": 64,
}


def weighed(folder, tensors, config=None, metadata=None):
    folder.mkdir(exist_ok=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata,
    )
    return measure_weights(specify(config) if config else None, open_weights(find_files(folder)))


def smooth(rows, width):
    steps = torch.randn(rows, width)
    for p in range(1, rows):
        steps[p] = 0.9 * steps[p - 1] + 0.19**0.5 * steps[p]
    return steps


def waves(rows, width):
    table = torch.zeros(rows, width)
    for p in range(rows):
        for j in range(width // 2):
            angle = p / 10_000 ** (2 * j / width)
            table[p, 2 * j], table[p, 2 * j + 1] = math.sin(angle), math.cos(angle)
    return table


def tied(heads, groups, dim, width=96, layout="half"):
    """Return queries and keys in which the two channels of a pair are correlated."""
    k = torch.randn(groups, dim, width)
    q = torch.randn(heads, dim, width) + k.roll(dim // 2, 1).repeat_interleave(heads // groups, 0)
    if layout == "interleaved":
        q, k = (rows[:, permutation(dim, dim, layout)] for rows in (q, k))
    return q, k


def llama(layout="half", layers=3):
    made = {}
    for n in range(layers):
        q, k = tied(4, 2, 16, layout=layout)
        at = f"model.layers.{n}.self_attn"
        made |= {f"{at}.q_proj.weight": q.flatten(0, 1), f"{at}.k_proj.weight": k.flatten(0, 1)}
    return made


# Tables


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.position_embeddings.weight",
        "transformer.wpe.weight",
        "model.decoder.embed_positions.weight",
        "encoder.pos_embedding.weight",
        "position_embd.weight",
        "text_model.embeddings.position_embedding.weight",
        "positional_embedding",
        "position_encoding.pe",
        "encoder.position_enc.pos_table",
        "pos_emb.emb.weight",
        "prelayer.positional_encoder.pe",
    ],
)
def test_position_tables_are_known_by_their_names(tmp_path, name):
    table = torch.cat((smooth(200, 64), torch.randn(56, 64) * 0.02))
    others = {"embeddings.word_embeddings.weight": torch.randn(300, 64), "x.weight": table + 0}
    found = weighed(tmp_path, {name: table, **others})
    assert [(one.tensor, one.rows, one.width) for one in found.tables] == [(name, 256, 64)]
    assert (found.tables[0].learned.trained, found.tables[0].formula) == (200, None)
    assert "rows 200 … 255 are random" in sentences(found)[1]


@pytest.mark.parametrize("shape", [(1, 50, 64), (50, 1, 64)])
def test_a_buffer_of_sines_may_have_a_batch_before_its_rows_or_after(tmp_path, shape):
    """PyTorch's tutorial has the batch after the rows, and so do most copies of it."""
    (table,) = weighed(tmp_path, {"pe": waves(50, 64).reshape(shape)}).tables
    assert (table.rows, table.width, table.formula.base) == (50, 64, 10_000)


def test_images_have_a_table_with_a_batch_of_one(tmp_path):
    found = weighed(tmp_path, {"vit.embeddings.position_embeddings": torch.randn(1, 50, 64)})
    assert (found.tables[0].rows, found.tables[0].width) == (50, 64)


def test_an_unusual_name_is_known_by_the_shape_that_the_config_asks_for(tmp_path):
    config = {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 1, "n_positions": 40}
    tensors = {"a.posits": smooth(40, 32), "b.posits": smooth(41, 32), "c": smooth(40, 32)}
    found = weighed(tmp_path, tensors, config)
    assert [one.tensor for one in found.tables] == ["a.posits"]


def test_stored_rows_before_the_first_position_count(tmp_path):
    config = {"model_type": "opt", "hidden_size": 32, "num_attention_heads": 4}
    config |= {"max_position_embeddings": 40, "num_hidden_layers": 1, "word_embed_proj_dim": 32}
    found = weighed(tmp_path, {"a.pos": smooth(40, 32), "b.pos": smooth(42, 32)}, config)
    assert [one.tensor for one in found.tables] == ["b.pos"]


def test_numbers_of_positions_and_relative_tables_are_no_position_table(tmp_path):
    tensors = {
        "embeddings.position_ids": torch.arange(64).reshape(1, 64),
        "rel_pos_embed": torch.randn(64, 8),
        "attn.relative.pos_embed": torch.randn(64, 8),
        "wpe.weight": torch.randn(64),
    }
    found = weighed(tmp_path, tensors)
    assert (found.tables, found.evidence, found.recognised) == ([], None, False)
    (sentence,) = sentences(found)
    assert "recognised" in sentence
    assert sentence.endswith(
        "in 4 tensors (embeddings.position_ids, attn.relative.pos_embed, rel_pos_embed, …)"
    )
    assert found.to_json()["recognised"] is False


def test_the_formula_of_a_stored_table_is_told(tmp_path):
    found = weighed(tmp_path, {"pos_emb.weight": waves(50, 32)})
    assert found.tables[0].learned is None
    assert "sine beside cosine, base 10,000, exponents 2j/d, position 0" in sentences(found)[0]


# T5 and Shaw


def test_a_bias_is_read_as_the_config_says(tmp_path):
    config = {"model_type": "t5", "num_heads": 2, "relative_attention_max_distance": 64}
    config |= {"relative_attention_num_buckets": 16, "num_layers": 1, "d_model": 8}
    name = "{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    tensors = {name.format(part): torch.randn(16, 2) for part in ("encoder", "decoder")}
    found = weighed(tmp_path, tensors, config)
    read = {one.tensor.split(".")[0]: one for one in found.biases}
    for part, both in (("encoder", True), ("decoder", False)):
        assert (read[part].reach, read[part].bidirectional, read[part].assumed) == (64, both, False)
        first = read[part].steps.distance.index(1)
        assert read[part].steps.heads[1][first] == float(tensors[name.format(part)][1, 1])


def test_without_a_config_what_t5_released_is_assumed_and_said(tmp_path):
    weight = torch.zeros(32, 2)
    weight[:, 0] = torch.linspace(2, 0, 32)
    weight[31, 1] = 20
    found = weighed(tmp_path, {"x.decoder.relative_attention_bias.weight": weight})
    assert (found.biases[0].reach, found.biases[0].bidirectional) == (128, False)
    first, second = sentences(found)[:2]
    assert "causal buckets up to 128 tokens, an assumption without a config; 1 of 2" in first
    assert "in head 1 the last bucket, from 113 tokens on, is unusual: +20.0" in second


def test_shaws_vectors_are_known_in_every_layer(tmp_path):
    tensors = {f"l.{n}.emb_rel_{kind}": torch.randn(1, 9, 6) for n in range(2) for kind in "kv"}
    found = weighed(tmp_path, tensors | {"l.emb_rel_k": torch.randn(1, 8, 6)})
    assert [one.tensor for one in found.relative] == sorted(tensors)
    assert found.relative[0].vectors.distance == [*range(4, -5, -1)]
    assert len(sentences(found)) == 2


# Rotary projections


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_layout_that_weights_speak_for_is_told_against_the_config(tmp_path, layout):
    found = weighed(tmp_path, llama(layout), LLAMA)
    assert (found.evidence.verdict, found.layout) == (layout, "half")
    assert found.evidence.count == 3 * 4 * 8
    contradicted = any("but the config states layout 'half'" in line for line in sentences(found))
    assert contradicted == (layout == "interleaved")


@pytest.mark.parametrize("measured", [measure_weights, layout_evidence])
def test_one_thread_measures_and_the_caller_has_its_own_again(tmp_path, monkeypatch, measured):
    """Beside two busy processes, two threads needed nine times the processor time of one."""
    met = []
    monkeypatch.setattr(rotary_pairs, "evidence", lambda _: met.append(torch.get_num_threads()))
    save_file(llama(), tmp_path / "model.safetensors")
    weights = open_weights(find_files(tmp_path))
    with threads(2):
        measured(specify(LLAMA), weights)
        assert (met, torch.get_num_threads()) == ([1], 2)


def test_what_a_converted_file_says_of_its_layout_counts_more_than_the_config(tmp_path):
    found = weighed(tmp_path, llama("interleaved"), LLAMA, {"posenc.layout": "interleaved"})
    assert found.layout == found.evidence.verdict == found.bands[0].layout == "interleaved"


def test_untrained_projections_speak_for_neither(tmp_path):
    tensors = {name: torch.randn_like(tensor) for name, tensor in llama().items()}
    found = weighed(tmp_path, tensors, LLAMA)
    assert found.evidence.verdict is None
    assert "do not show in which layout they were trained" in sentences(found)[-1]


def test_strength_is_that_of_the_pair_in_the_layout_of_the_model(tmp_path):
    tensors = llama()
    q = tensors["model.layers.1.self_attn.q_proj.weight"].unflatten(0, (4, 16))
    q[:, [3, 11]] *= 50  # a pair, in halves
    found = weighed(tmp_path, tensors, LLAMA)
    (bands,) = found.bands
    assert (bands.layers, len(bands.tensors), bands.layout) == ([0, 1, 2], 6, "half")
    assert max(range(8), key=lambda j: bands.queries[j]) == 3
    assert max(bands.queries) > 10 * sorted(bands.queries)[-2] > 0
    assert bands.wavelengths == pytest.approx(
        [2 * math.pi * 10_000 ** (j / 8) for j in range(8)], rel=1e-6
    )
    assert sentences(found)[0].startswith("layers 0–2: of 8 pairs, pair 3 ")


@pytest.mark.parametrize("model", ["gpt_neox", "phi3"])
def test_fused_projections_are_taken_apart(tmp_path, model):
    groups = 2 if model == "phi3" else 4
    config = LLAMA | {"model_type": model, "num_key_value_heads": groups, "hidden_size": 64}
    config |= {"partial_rotary_factor": 1.0} if model == "phi3" else {"rotary_pct": 1.0}
    tensors = {}
    for n in range(3):
        q, k = tied(4, groups, 16, width=64)
        v = torch.randn(groups, 16, 64)
        if model == "phi3":
            fused, name = torch.cat((q, k, v)), f"model.layers.{n}.self_attn.qkv_proj.weight"
        else:
            fused = torch.stack((q, k, v), 1)
            name = f"gpt_neox.layers.{n}.attention.query_key_value.weight"
        tensors[name] = fused.reshape(-1, 64)
    found = weighed(tmp_path, tensors, config)
    assert found.evidence.verdict == "half"
    assert found.evidence.t["half"] > 8


def test_only_the_channels_that_turn_are_weighed(tmp_path):
    q, k = tied(4, 4, 16)
    still = torch.randn(4, 32, 96) * 30
    tensors = {
        f"transformer.h.{n}.attn.{to}_proj.weight": torch.cat((rows, still), 1).flatten(0, 1)
        for n in range(2)
        for to, rows in (("q", q), ("k", k))
    }
    config = {"model_type": "gptj", "n_embd": 192, "n_head": 4, "n_layer": 2, "rotary_dim": 16}
    found = weighed(tmp_path, tensors, config)
    assert found.evidence.count == 2 * 4 * 8
    assert (found.evidence.verdict, found.layout) == ("half", "interleaved")
    assert max(found.bands[0].queries) < 30 * 96**0.5


def test_projections_that_do_not_fit_the_config_are_left_alone(tmp_path):
    found = weighed(tmp_path, llama(), LLAMA | {"num_attention_heads": 8})
    assert (found.evidence, found.bands) == (None, [])


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_gguf_says_what_it_needs_to_be_weighed(tmp_path, kind):
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", kind)
    writer.add_context_length(1024)
    writer.add_embedding_length(96)
    writer.add_block_count(6)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_rope_freq_base(100.0)
    if kind == "gemma3":
        writer.add_sliding_window(512)
    layout = "interleaved" if kind == "llama" else "half"
    for n in range(3):
        for to, rows in zip("qk", tied(4, 2, 16, layout=layout), strict=True):
            writer.add_tensor(f"blk.{n}.attn_{to}.weight", rows.flatten(0, 1).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = measure_weights(None, open_weights(find_files(tmp_path)))
    assert found.evidence.verdict == found.bands[0].layout == found.layout == layout
    waves = [2 * math.pi * 100 ** (j / 8) for j in range(8)]
    # The first five of six layers of Gemma 3 have a window and the base 10,000
    if kind == "gemma3":
        waves = [2 * math.pi * 10_000 ** (j / 8) for j in range(8)]
    assert np.allclose(found.bands[0].wavelengths, waves)


@pytest.mark.parametrize(
    "says",
    [
        {"attention.head_count": [4, 4, 4]},
        {"attention.head_count": 0},
        {"attention.head_count_kv": 3},
        {"attention.key_length": 2**31},
        {"rope.dimension_count": 7},
        {"rope.dimension_count": 18},
        {"rope.freq_base": float("nan")},
        {"rope.freq_base": -1.0},
        {"rope.freq_base": "ten"},
    ],
)
def test_gguf_that_says_what_cannot_be_is_not_weighed(tmp_path, says):
    right = {"attention.head_count": 4, "attention.head_count_kv": 2, "rope.freq_base": 100.0}
    right |= {"context_length": 1024, "embedding_length": 96, "block_count": 3}
    tensors = {
        f"blk.{n}.attn_{to}.weight": rows.flatten(0, 1)
        for n in range(3)
        for to, rows in zip("qk", tied(4, 2, 16), strict=True)
    }
    save_file(tensors, tmp_path / "model.safetensors")
    weights = open_weights(find_files(tmp_path))
    for said, seen in ((right | {"attention.key_length": 16}, True), (right | says, False)):
        said = {"attention.key_length": 16} | said
        weights.metadata = {f"llama.{k}": v for k, v in said.items()}
        weights.metadata["general.architecture"] = "llama"
        assert bool(measure_weights(None, weights).evidence) is seen


# What is handed on


def test_curves_are_thinned_in_json_and_say_so(tmp_path):
    found = weighed(tmp_path, {"wpe.weight": smooth(1000, 16)} | llama(), LLAMA)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    rows = data["tables"][0]["learned"]
    assert rows["every"] == 4
    assert rows["norms"] == found.tables[0].learned.norms[::4]
    assert len(rows["likeness"]) == 250
    assert data["evidence"]["verdict"] == "half"


def test_numbers_that_are_not_finite_are_told_and_not_measured(tmp_path):
    tensors = llama() | {"wpe.weight": smooth(40, 16)}
    tensors["wpe.weight"][3, 3] = torch.nan
    tensors["model.layers.1.self_attn.k_proj.weight"][0, 0] = torch.inf
    found = weighed(tmp_path, tensors, LLAMA)
    assert found.tables == []
    assert found.bands[0].layers == [0, 2]
    assert sorted(found.broken) == ["model.layers.1.self_attn.k_proj.weight", "wpe.weight"]
    assert "wpe.weight: holds numbers that are not finite, so it is not measured" in sentences(
        found
    )


def test_one_layer_that_is_not_finite_leaves_nothing_to_say(tmp_path):
    tensors = {name: torch.full_like(tensor, torch.nan) for name, tensor in llama().items()}
    found = weighed(tmp_path, tensors, LLAMA)
    assert (found.bands, found.evidence.verdict, found.evidence.count) == ([], None, 0)
    json.dumps(found.to_json(), allow_nan=False)
    assert sentences(found)


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("wpe.weight", (8, 2**22), "has 8 rows of 4,194,304 channels, more than any model"),
        ("wpe.weight", (2**22, 8), "has 4,194,304 rows of 8 channels, more than any model"),
        ("wpe.weight", (2**20, 2**11), "has 2,147,483,648 numbers, over 33,554,432"),
        ("x.emb_rel_k", (1, 2**22 + 1, 4), "has 4,194,305 rows of 4 channels"),
        ("x.relative_attention_bias.weight", (32, 2**20), "has 1,048,576 heads"),
    ],
)
def test_what_no_model_has_is_not_even_read(tmp_path, name, shape, why):
    """The files are sparse, need no disk space, and must not be read into memory."""
    sparse(tmp_path / "model.safetensors", {name: shape})
    tracemalloc.start()
    found = measure_weights(None, open_weights(find_files(tmp_path)))
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    assert found.skipped[name].startswith(why)
    assert f"{name}: {why}" in sentences(found)[0]


def sparse(path, shapes):
    """Write a safetensors file of zeros that is sparse on disk."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def test_a_reach_of_millions_takes_no_time(tmp_path):
    config = {"model_type": "t5", "num_heads": 2, "relative_attention_max_distance": 2**24}
    config |= {"num_layers": 1, "d_model": 8}
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    (bias,) = weighed(tmp_path, {name: torch.randn(32, 2)}, config).biases
    assert (bias.reach, bias.steps.distance[-1]) == (2**24, 2**24)


def test_heads_without_inputs_are_left_alone(tmp_path):
    """Norms of 2⁴⁰ rows without elements would still be numbers."""
    config = LLAMA | {"num_attention_heads": 2**36, "num_key_value_heads": 2**36, "hidden_size": 96}
    shapes = {f"model.layers.0.self_attn.{n}_proj.weight": (2**40, 0) for n in "qk"}
    sparse(tmp_path / "model.safetensors", shapes)
    found = measure_weights(specify(config), open_weights(find_files(tmp_path)))
    assert not found.recognised


@pytest.mark.slow
def test_a_wide_tables_offset_is_sought_by_some_of_its_pairs(tmp_path):
    """Searching all 4,096 pairs needed 268 MB."""
    table = waves(40, 8192).roll(-3, 0)[:30]
    (found,) = weighed(tmp_path, {"wpe.weight": table}).tables
    assert (found.formula.offset, found.formula.base) == (3, 10_000)


@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (8, 0), (2, 2)])
def test_tables_of_hardly_anything_raise_nothing(tmp_path, shape):
    names = ("wpe.weight", "x.relative_attention_bias.weight", "x.emb_rel_k")
    found = weighed(tmp_path, {name: torch.randn(shape) for name in names})
    json.dumps(found.to_json(), allow_nan=False)
    drawn(found)


def drawn(found, width=80):
    console = Console(file=io.StringIO(), width=width)
    terminal.print_weights(found, console)
    return console.file.getvalue()


def test_what_is_zero_is_said_to_be_zero(tmp_path):
    tensors = {name: torch.zeros_like(tensor) for name, tensor in llama().items()}
    lines = sentences(weighed(tmp_path, tensors | {"wpe.weight": torch.zeros(40, 16)}, LLAMA))
    assert lines[0].startswith("wpe.weight: 40 rows of 16, all zero: ")
    assert "layers 0–2: queries or keys are zero in every pair" in sentences(
        weighed(tmp_path, tensors, LLAMA, {"posenc.layout": "half"})
    )


def test_everything_is_drawn(tmp_path):
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    tensors = {"wpe.weight": smooth(300, 16), "pos_emb": waves(30, 8), name: torch.randn(32, 3)}
    tensors |= {"x.emb_rel_k": torch.randn(1, 9, 4)} | llama()
    found = weighed(tmp_path, tensors, LLAMA)
    text = " ".join(drawn(found).split())
    for line in sentences(found):
        assert line.split(": ", 1)[-1] in text
    for word in ("norm", "likeness", "head 2", "x.emb_rel_k", "queries"):
        assert word in text
    table = figures.table(next(one for one in found.tables if one.learned))
    assert list(table.panels[0].marks[0].y) == found.tables[1].learned.norms
    assert figures.table(found.tables[0]) is None
    bias = figures.bias(found.biases[0])
    assert [line.x for line in bias.panels[0].marks] == [found.biases[0].steps.distance] * 3
    assert len(figures.relative(found.relative).panels) == 1
    assert [line.name for line in figures.bands(found.bands).panels[0].marks] == [
        "queries, layers 0–2",
        "keys, layers 0–2",
    ]
    assert figures.bands([]) is figures.relative([]) is None
