"""Tiny transformers models, trained for seconds to predict the letter twelve tokens before.

Each letter of their text repeats the one `BACK` before it, six times in seven. Only the position
of a key helps the prediction, so a wrong reading of the rotation costs bits.
"""

import json
import string
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

LETTERS = string.ascii_lowercase[:12]
BACK, LENGTH, STEPS = 12, 64, 60
SIZE = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
REST = dict(vocab_size=len(LETTERS) + 2, max_position_embeddings=LENGTH, tie_word_embeddings=False)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=1)
ROPE = dict(rope_type="default", rope_theta=10_000.0)
MORE = {
    "Llama": dict(num_key_value_heads=2, rope_parameters=ROPE),
    "Qwen3": dict(num_key_value_heads=2, head_dim=16, rope_parameters=ROPE),
    "GPTNeoX": dict(rope_parameters=ROPE | dict(partial_rotary_factor=0.5)),
    "Gemma3": dict(
        num_key_value_heads=2,
        head_dim=16,
        query_pre_attn_scalar=16,
        layer_types=["sliding_attention"],
        sliding_window=16,
        rope_parameters=dict(sliding_attention=ROPE, full_attention=ROPE),
    ),
}


def text(count, seed=0):
    """Return random letters, of which six in seven repeat the letter twelve places before."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, len(LETTERS), (count,), generator=random)
    noise = torch.rand(count, generator=random) < 1 / 7
    for n in range(BACK, count):
        if not noise[n]:
            ids[n] = ids[n - BACK]
    return "".join(LETTERS[n] for n in ids.tolist())


def trained(kind, folder, **more):
    """Train a tiny model of this class; save it, and a tokenizer of letters, in a folder."""
    torch.manual_seed(0)
    sizes = SIZE | REST | TOKENS | MORE[kind] | more
    name = "Gemma3Text" if kind == "Gemma3" else kind
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    ids = torch.tensor([LETTERS.index(letter) + 2 for letter in text(20_000)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(STEPS):
        starts = torch.randint(0, len(ids) - LENGTH, (16,))
        rows = ids[starts[:, None] + torch.arange(LENGTH)]
        rows[:, 0] = TOKENS["bos_token_id"]
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    known = {"<pad>": 0, "<s>": 1} | {letter: n + 2 for n, letter in enumerate(LETTERS)}
    tokenizer = Tokenizer(models.WordLevel(known, "<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    model.save_pretrained(folder)
    tokenizer.save(str(Path(folder) / "tokenizer.json"))
    return folder


def planted(folder, to, **keys):
    """Copy a model, with changed values in its config; a dict changes keys of an object."""
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    config = json.loads((to / "config.json").read_text())
    for key, value in keys.items():
        inner = config.get(key)
        config[key] = (
            inner | value if isinstance(inner, dict) and isinstance(value, dict) else value
        )
    (to / "config.json").write_text(json.dumps(config, indent=2))
    return to


def slowed(kind, folder, factor, **keys):
    """Train a model with angles divided by `factor`, and omit the factor from its config."""
    linear = dict(rope_type="linear", factor=factor, rope_theta=ROPE["rope_theta"])
    made = trained(kind, Path(folder) / "trained", rope_parameters=linear)
    plain = dict(rope_type="default", factor=None)
    return planted(made, Path(folder) / "said", rope_parameters=plain, **keys)
