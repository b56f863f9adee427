"""Convert the config, tensor names and tensors of a GGUF file for transformers.

Names are mapped back to those of transformers, for architectures whose tensors llama.cpp's
converter only renames, except that it may reorder the rows of queries and keys. Unquantised
tensors keep their bytes; quantised blocks are dequantised to float32.
https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/tensor_mapping.py
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posenc.models.config.gguf import as_config, specify_gguf
from posenc.models.files.errors import ModelError
from posenc.models.weights.info import BITS, Info

if TYPE_CHECKING:
    from posenc.models.weights import Weights

CLASSES = {  # general.architecture → its class in transformers
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
# Keys that have nothing to do with positions
KEYS = {
    "feed_forward_length": "intermediate_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "vocab_size": "vocab_size",
}
TOKENS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}


def renamed(weights: Weights) -> dict[str, Info]:
    """Map each GGUF tensor name to the tensor's header entry in the safetensors file to write.

    Raises ModelError for an architecture or a tensor that renaming alone cannot convert.
    """
    file = next(iter(weights.infos.values())).file if weights.infos else "model.gguf"
    kind = weights.metadata.get("general.architecture")
    if kind not in CLASSES:
        problem = "cannot be converted to transformers by renaming its tensors"
        raise ModelError(file, "general.architecture", problem, kind, ", ".join(CLASSES))
    return {name: _renamed(info) for name, info in weights.infos.items()}


def _renamed(info: Info) -> Info:
    at = NAME.fullmatch(info.name)
    names = OF_LAYER if at and at["layer"] else WHOLE
    if at is None or at["module"] not in names:
        raise ModelError(info.file, info.name, "has no known counterpart in transformers")
    where = f"model.layers.{at['layer']}." if at["layer"] else ""
    dtype = info.dtype if info.dtype in BITS else "F32"
    return replace(info, name=f"{where}{names[at['module']]}.{at['leaf']}", dtype=dtype)


def config_of(weights: Weights, file: str) -> dict[str, Any]:
    """Return a transformers config.json for the model in a GGUF file."""
    metadata = weights.metadata
    kind = metadata["general.architecture"]
    turn = specify_gguf(metadata, weights, file).rotary[0]
    if turn.turned != turn.dim:
        key, class_ = f"{kind}.rope.dimension_count", CLASSES[kind]
        raise ModelError(
            file, key, f"must be {turn.dim}, since {class_} rotates whole heads", turn.turned
        )
    config = {"architectures": [CLASSES[kind]], **as_config(metadata, weights, file)}
    for key, usual in KEYS.items():
        if (value := metadata.get(f"{kind}.{key}")) is not None:
            config[usual] = value
    config |= {usual: metadata[key] for key, usual in TOKENS.items() if key in metadata}
    rows = weights.infos.get("token_embd.weight")
    if rows is not None:
        config["vocab_size"] = rows.shape[0]
    config["tie_word_embeddings"] = "output.weight" not in weights.infos
    if kind == "llama":
        config["attention_bias"] = "blk.0.attn_q.bias" in weights.infos
    return config


def tensor_bytes(weights: Weights, name: str) -> bytes:
    """Return the bytes of a tensor; a quantised tensor is converted to float32."""
    import torch

    values = weights[name].contiguous()
    return values.reshape(-1).view(torch.uint8).numpy().tobytes()
