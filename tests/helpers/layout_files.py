"""The config and tensors of one Llama layer, and the plan that reorders their rows."""

from pathlib import Path

from posenc.models.layouts import plan
from posenc.models.weights.info import Info

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LAYER = {"q_proj.weight": (32, 32), "k_proj.weight": (16, 32), "v_proj.weight": (16, 32)}
AT = "model.layers.0.self_attn."

WHOLE = ("model.", "base_model.", "mtp.", "pool.")  # how names begin that stand elsewhere


def planned(more=(), config=(), without=(), to="interleaved", at=AT, dtype="F32"):
    """Plan the row order of one Llama layer, with tensors added (`more`) or omitted."""
    shapes = {at + n: shape for n, shape in LAYER.items() if n not in without}
    shapes |= {n if n.startswith(WHOLE) else at + n: s for n, s in dict(more).items()}
    infos = {name: Info(name, dtype, shape, Path("w")) for name, shape in shapes.items()}
    return plan(infos, CONFIG | dict(config), to)
