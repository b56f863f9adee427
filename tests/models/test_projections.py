"""Test the rotated rows of queries and keys against the written tensors."""

import pytest
import torch
from safetensors.torch import save_file

from posenc.models.config import specify
from posenc.models.files.folder import find_files
from posenc.models.projections import find_projections
from posenc.models.weights import open_weights

LLAMA = {
    "model_type": "llama",
    "hidden_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "max_position_embeddings": 64,
}
AT = "model.layers.0.self_attn"


def found(folder, tensors, config=LLAMA):
    """Write a file with these tensors, and return its projections and weights."""
    save_file(tensors, folder / "model.safetensors")
    weights = open_weights(find_files(folder))
    return find_projections(specify(config), weights), weights


def test_neighbouring_heads_share_a_key(tmp_path):
    tensors = {
        f"{AT}.q_proj.weight": torch.randn(64, 96),
        f"{AT}.k_proj.weight": torch.randn(32, 96),
    }
    (one,), weights = found(tmp_path, tensors)
    q, k = one.rotary_rows(weights)
    keys = tensors[f"{AT}.k_proj.weight"].unflatten(0, (2, 16))
    assert q.flatten(0, 1).equal(tensors[f"{AT}.q_proj.weight"])
    assert k.equal(keys[[0, 0, 1, 1]])


def test_deepseeks_shared_key_lies_behind_a_latent(tmp_path):
    config = LLAMA | {"model_type": "deepseek_v3", "num_key_value_heads": 4, "kv_lora_rank": 20}
    config |= {"q_lora_rank": None, "qk_rope_head_dim": 8, "qk_nope_head_dim": 6, "v_head_dim": 10}
    config.pop("head_dim")
    q, k = torch.randn(4 * 14, 96), torch.randn(28, 96)
    tensors = {f"{AT}.q_proj.weight": q, f"{AT}.kv_a_proj_with_mqa.weight": k}
    (one,), weights = found(tmp_path, tensors, config)
    queries, keys = one.rotary_rows(weights)
    assert queries.equal(q.unflatten(0, (4, 14))[:, 6:])
    assert keys.equal(k[20:].expand(4, 8, 96))


@pytest.mark.parametrize("rows", [(64, 31), (63, 32), (64, 16), (0, 32)])
def test_rows_that_do_not_fit_the_heads_are_no_projection(tmp_path, rows):
    q, k = (torch.randn(n, 96) for n in rows)
    assert found(tmp_path, {f"{AT}.q_proj.weight": q, f"{AT}.k_proj.weight": k})[0] == []


@pytest.mark.parametrize("name", ["visual.layers.0.self_attn", "model.layers.0.cross_attn"])
def test_what_is_no_self_attention_of_a_text_is_no_projection(tmp_path, name):
    tensors = {f"{name}.q_proj.weight": torch.randn(64, 96)}
    tensors |= {f"{name}.k_proj.weight": torch.randn(32, 96)}
    assert found(tmp_path, tensors)[0] == []


def test_layers_that_turn_nothing_have_none(tmp_path):
    config = LLAMA | {"model_type": "smollm3", "no_rope_layers": [1, 0, 1]}
    tensors = {}
    for n in range(3):
        at = f"model.layers.{n}.self_attn"
        tensors |= {f"{at}.q_proj.weight": torch.randn(64, 96)}
        tensors |= {f"{at}.k_proj.weight": torch.randn(32, 96)}
    assert [one.layer for one in found(tmp_path, tensors, config)[0]] == [0, 2]
