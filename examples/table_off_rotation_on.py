"""GPT-2 on texts longer than trained, with its learned table or with RoPE (sources 001, 002).

"GPT-2 was trained with a maximum sequence length of 1024. What happens when you feed it 2048
tokens?" Its table has no row for them. Two tiny GPT-2s with the same weights learn the same task,
to copy the token eight tokens before, on texts of 32 tokens: one with its table, one with the table
off and RoPE on. Both then read 96 tokens. The table is made as long as these texts, so its later
rows are untrained. 300 steps, one seed.
"""

import torch
from transformers.models.gpt2.configuration_gpt2 import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

from posenc import RoPE
from posenc.models.adapter import apply

TRAINED, READ, BACK, STEPS = 32, 96, 8, 300


def tiny() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=16, n_positions=READ, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    ))  # fmt: skip


def texts(tokens: int, batch: int, random: torch.Generator) -> torch.Tensor:
    return torch.randint(16, (batch, tokens), generator=random)


def right(model: GPT2LMHeadModel, ids: torch.Tensor) -> torch.Tensor:
    """Return, by position, the share of correct predictions of the token eight tokens before."""
    with torch.no_grad():
        best = model(ids, use_cache=False).logits[:, BACK:].argmax(-1)
    return (best == ids[:, :-BACK]).float().mean(0)


def learn(model: GPT2LMHeadModel) -> GPT2LMHeadModel:
    random = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        ids = texts(TRAINED, 32, random)
        logits = model(ids, use_cache=False).logits[:, BACK:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, :-BACK].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


by_table, by_rotation = tiny(), tiny()
apply(by_rotation, RoPE(16))  # switches the table off
unseen = texts(READ, 64, torch.Generator().manual_seed(1))
models = {"table": by_table, "RoPE": by_rotation}
shares = {name: right(learn(model), unseen) for name, model in models.items()}
for name, share in shares.items():
    within, beyond = share[: TRAINED - BACK].mean(), share[TRAINED - BACK :].mean()
    print(f"{name}: right for {within:.0%} up to {TRAINED} tokens, {beyond:.0%} beyond")
