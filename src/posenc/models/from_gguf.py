"""A GGUF file as transformers would have the model: its config, its tensors' names, its bytes.

Names are those of llama.cpp's converter, read backwards, for architectures whose tensors it only
renames, and of which it may reorder queries and keys. Numbers that a GGUF file stores plainly keep
their bytes; blocks of quantised ones become the float32 that they stand for.
https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/tensor_mapping.py
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posenc.models.config import gguf
from posenc.models.files.errors import ModelError
from posenc.models.weights.info import BITS, Info

if TYPE_CHECKING:
    from posenc.models.weights import Weights

CLASSES = {  # general.architecture -> the class that transformers has for it
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
OF_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAME = re.compile(r"(?:blk\.(?P<layer>\d{1,6})\.)?(?P<module>\w+)\.(?P<leaf>weight|bias)")
KEYS = {  # beyond those that say something of positions
    "feed_forward_length": "intermediate_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "vocab_size": "vocab_size",
}
TOKENS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}


def named(weights: Weights) -> dict[str, Info]:
    """Name in GGUF -> the tensor as it will be written, under its name in transformers.

    Raises ModelError for an architecture or a tensor that is more than renamed.
    """
    file = next(iter(weights.infos.values())).file if weights.infos else "model.gguf"
    kind = weights.metadata.get("general.architecture")
    if kind not in CLASSES:
        more = "is not one that can be written for transformers by renaming its tensors"
        raise ModelError(file, "general.architecture", more, kind, ", ".join(CLASSES))
    return {name: _renamed(info) for name, info in weights.infos.items()}


def _renamed(info: Info) -> Info:
    at = NAME.fullmatch(info.name)
    known = OF_LAYER if at and at["layer"] else WHOLE
    if at is None or at["module"] not in known:
        raise ModelError(info.file, info.name, "is a tensor whose name in transformers is unknown")
    where = f"model.layers.{at['layer']}." if at["layer"] else ""
    dtype = info.dtype if info.dtype in BITS else "F32"
    return replace(info, name=f"{where}{known[at['module']]}.{at['leaf']}", dtype=dtype)


def config(weights: Weights, file: str) -> dict[str, Any]:
    """The config.json of the same model, as its class in transformers takes it."""
    says = weights.metadata
    kind = says["general.architecture"]
    turn = gguf.read(says, weights.infos, file).rotary[0]
    if turn.turned != turn.dim:
        key, class_ = f"{kind}.rope.dimension_count", CLASSES[kind]
        raise ModelError(file, key, f"of {turn.dim}, but {class_} turns all", turn.turned)
    made = {"architectures": [CLASSES[kind]], **gguf.config(says, weights.infos, file)}
    for key, usual in KEYS.items():
        if (value := says.get(f"{kind}.{key}")) is not None:
            made[usual] = value
    made |= {usual: says[key] for key, usual in TOKENS.items() if key in says}
    rows = weights.infos.get("token_embd.weight")
    if rows is not None:
        made["vocab_size"] = rows.shape[0]
    made["tie_word_embeddings"] = "output.weight" not in weights.infos
    if kind == "llama":
        made["attention_bias"] = "blk.0.attn_q.bias" in weights.infos
    return made


def raw(weights: Weights, name: str) -> bytes:
    """The bytes to be written: those stored, or of the float32 that blocks stand for."""
    import torch

    values = weights[name].contiguous()
    return values.reshape(-1).view(torch.uint8).numpy().tobytes()
