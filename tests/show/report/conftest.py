"""Every figure there is, of small and real data."""

import json

import pytest
import torch

from posenc import Binary, Integer, Mixed, RoPE, SelfAttention, Sinusoidal, axial, frequencies
from posenc.analysis import decomposition, geometry, grids, order, similarity
from posenc.analysis import frequencies as turns
from posenc.analysis.clocks import clocks
from posenc.analysis.clouds import clouds
from posenc.analysis.dials import by_method
from posenc.analysis.precision import precision
from posenc.analysis.relative_tables import Steps, Vectors
from posenc.analysis.rotary_pairs import Evidence
from posenc.analysis.shift_matrix import group
from posenc.analysis.tables import Rows
from posenc.analysis.text import novel
from posenc.analysis.trajectory import advance
from posenc.models.inspection import inspect
from posenc.models.weighing import Bands, Bias, Positions, Relative, Weighing
from posenc.show.report import figures


@pytest.fixture(scope="session")
def drawn(everything, tmp_path_factory):
    """By name. Words and vectors are those of the packaged novel."""
    text = novel()
    span = text.sentences(shortest=14)[3]
    words, x = text.words[span], text.vectors(32)[text.ids[span]]
    additive = {"Integer": Integer(16), "Binary": Binary(16, bits=8), "Sinusoidal": Sinusoidal(16)}
    moved = {
        name: advance(one, x[3, :16], range(12))
        for name, one in (additive | {"RoPE": RoPE(16)}).items()
    }
    torch.manual_seed(0)
    parts = decomposition.of_layer(SelfAttention(32, 2, RoPE(16)), x.unsqueeze(0))
    weights = torch.tensor(list(parts.parts.values())).sum(0).softmax(-1).tolist()
    config = tmp_path_factory.mktemp("model") / "config.json"
    config.write_text(json.dumps(LLAMA))
    pair = x[:, :2]
    seen = order.Order(
        words, list(range(len(words)))[::-1], [0.3] * 24, [1e-7] * 24, (0, 4), 0.3, 1e-7
    )
    return {
        "attention": figures.attention(weights, words),
        "compared": figures.compared(weights, weights, words),
        "bands": figures.bands(inspect(config).groups[0].turning),
        "bound": figures.bound(similarity.bound(frequencies(32), x[0], x[1], 300)),
        "codes": figures.codes(moved),
        "costs": figures.costs(everything),
        "curves": figures.curves(everything),
        "decay": figures.decay({"64 channels": similarity.of_distance(frequencies(64), 1000)}),
        "decomposition": figures.decomposition(parts, words),
        "encoding": figures.encoding("Sinusoidal", everything.encodings[7].rows),
        "dials": figures.dials(by_method(frequencies(64).tolist(), 512, 2048), 512, 2048),
        "stretch": figures.stretch(turns.extended(frequencies(64).tolist(), 512, 4.0)),
        "extensions": figures.extensions(turns.extended(frequencies(64).tolist(), 512, 4.0)),
        "grids": figures.grids(
            {
                "Axial RoPE": grids.to_patch(RoPE(axial(32, axes=2)), 7, 5, (2, 3)),
                "RoPE-Mixed": grids.to_patch(Mixed(32, heads=2), 7, 5, (2, 3)),
            }
        ),
        "order": figures.order(everything),
        "peak": figures.peak(similarity.peak(frequencies(32), x[0], 77, 300)),
        "precision": figures.precision(precision(frequencies(32))),
        "clouds": figures.clouds({"Integer": clouds(text, text.vectors(32), Integer(32))}),
        "properties": figures.properties(everything),
        "rotation": figures.rotation(
            {
                " ".join(words[start:]): geometry.turned(words[start:], pair[start:], 0.4)
                for start in (0, 3)
            },
            (words[3], words[5]),
        ),
        "rows": figures.rows(everything),
        "shift": figures.shift("Sinusoidal", group(Sinusoidal(8), 3, 5)),
        "shuffled": figures.shuffled(seen),
        "similarity": figures.similarity("Binary", similarity.between(Binary(64), 300)),
        "turning": figures.turning("RoPE", clocks(RoPE(16), range(12))),
        "vectors": figures.vectors(moved),
    }


LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


@pytest.fixture
def weighed():
    """Measurements of weights that are made up: a tensor of each kind, and a layout."""
    learned = Rows([1.0] * 8, [0.9] * 7, [1.0] * 4, [0.9, 0.8, 0.7, 0.1], 3.14, 6, "random", None)
    steps = Steps([-2, -1, 0, 1, 2, 3, 4], [[0, 0, 0, 2, 1, 1, -3.0], [0, 0, 0, 0, 1, 1, 1.0]])
    vectors = Vectors([1, 0, -1], [1.0, 3.0, 2.0], [0.5, 0.25])
    strengths = Bands(["q", "k"], [0, 1, 2], "half", [6.283, 62.83], [1.0, 2.0], [3.0, 0.5])
    evidence = Evidence({"half": 9.0, "interleaved": 1.0}, {"half": 0.3}, {"half": 0.1}, 128)
    return Weighing(
        tables=[Positions("wpe.weight", 8, 4, None, learned)],
        biases=[Bias("bias.weight", 7, 4, True, True, steps)],
        relative=[Relative("layers.0.emb_rel_k", vectors), Relative("layers.1.emb_rel_k", vectors)],
        bands=[strengths],
        evidence=evidence,
        layout="interleaved",
        broken=["odd.weight"],
        skipped={"big.weight": "it is too large"},
        tensors=12,
        some=["a", "b", "c"],
    )
