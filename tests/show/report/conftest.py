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
from posenc.models.inspection import inspect
from posenc.models.weight_measurements import Bands, Bias, Positions, Relative, WeightMeasurements
from posenc.show.report.figures import attention, plane, positions, rotary
from posenc.show.report.figures.clocks import turning
from posenc.show.report.kinds.comparison import figures as comparison


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """The folder of a model that is for texts of 131,072 tokens."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


@pytest.fixture(scope="session")
def drawn(everything, llama):
    """By name. Words and vectors are those of the packaged novel."""
    text = novel()
    span = text.sentences(shortest=14)[3]
    words, x = text.words[span], text.vectors(32)[text.ids[span]]
    torch.manual_seed(0)
    parts = decomposition.of_layer(SelfAttention(32, 2, RoPE(16)), x.unsqueeze(0))
    weights = torch.tensor(list(parts.parts.values())).sum(0).softmax(-1).tolist()
    pair = x[:, :2]
    seen = order.Order(
        words, list(range(len(words)))[::-1], [0.3] * 24, [1e-7] * 24, (0, 4), 0.3, 1e-7
    )
    return {
        "attention": attention.attention(weights, words),
        "compared": attention.compared(weights, weights, words),
        "bands": rotary.bands(inspect(llama).groups[0].turning),
        "bound": positions.bound(similarity.bound(frequencies(32), x[0], x[1], 300)),
        "costs": comparison.costs(everything),
        "curves": comparison.curves(everything),
        "decay": positions.decay({"64 channels": similarity.of_distance(frequencies(64), 1000)}),
        "decomposition": attention.decomposition(parts, words),
        "encoding": positions.encoding("Sinusoidal", everything.encodings[7].rows),
        "dials": rotary.dials(by_method(frequencies(64).tolist(), 512, 2048), 512, 2048),
        "stretch": rotary.stretch(turns.extended(frequencies(64).tolist(), 512, 4.0)),
        "extensions": rotary.extensions(turns.extended(frequencies(64).tolist(), 512, 4.0)),
        "grids": plane.grids(
            {
                "Axial RoPE": grids.to_patch(RoPE(axial(32, axes=2)), 7, 5, (2, 3)),
                "RoPE-Mixed": grids.to_patch(Mixed(32, heads=2), 7, 5, (2, 3)),
            }
        ),
        "order": comparison.order(everything),
        "peak": positions.peak(similarity.peak(frequencies(32), x[0], 77, 300)),
        "precision": rotary.precision(precision(frequencies(32))),
        "clouds": plane.clouds({"Integer": clouds(text, text.vectors(32), Integer(32))}),
        "properties": comparison.properties(everything),
        "rotation": plane.rotation(
            {
                " ".join(words[start:]): geometry.turned(words[start:], pair[start:], 0.4)
                for start in (0, 3)
            },
            (words[3], words[5]),
        ),
        "rows": comparison.rows(everything),
        "shift": positions.shift("Sinusoidal", group(Sinusoidal(8), 3, 5)),
        "shuffled": attention.shuffled(seen),
        "similarity": positions.similarity("Binary", similarity.between(Binary(64), 300)),
        "turning": turning("RoPE", clocks(RoPE(16), range(12))),
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
    learned = Rows([1.0] * 8, [0.9] * 7, [0.9, 0.8, 0.7, 0.1], 3.14, 6, "random", None)
    steps = Steps([-2, -1, 0, 1, 2, 3, 4], [[0, 0, 0, 2, 1, 1, -3.0], [0, 0, 0, 0, 1, 1, 1.0]])
    vectors = Vectors([1, 0, -1], [1.0, 3.0, 2.0], [0.5, 0.25])
    strengths = Bands(["q", "k"], [0, 1, 2], "half", [6.283, 62.83], [1.0, 2.0], [3.0, 0.5])
    evidence = Evidence({"half": 9.0, "interleaved": 1.0}, {"half": 0.3}, {"half": 0.1}, 128)
    return WeightMeasurements(
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
