"""Adapted models in any order of calls and writes, against fresh copies of them.

The same as `tests/attention/test_states.py` does with layers, which imports nothing of models.
"""

import copy
from dataclasses import dataclass
from itertools import product
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import transformers as T
from attention.test_states import (
    ENCODINGS,
    HEADS,
    KEPT,
    KEYS,
    LEARNED,
    MODES,
    WIDTH,
    Writes,
    close,
    made,
    run_as,
)
from hypothesis.stateful import initialize, rule
from thorough import some
from writes import WAYS

from posenc.models.adapter import apply

CONFIG = T.LlamaConfig(
    hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=2,
    vocab_size=40, intermediate_size=48, max_position_embeddings=64, initializer_range=0.3,
)  # fmt: skip
APPLICABLE = [
    name
    for name, make in ENCODINGS.items()
    if make().axes == 1 and "on_hidden" not in make().acts_on
]


@dataclass
class InModel:
    """An encoding that a tiny Llama has had applied, as its holder."""

    encoding: Any
    model: Any = None

    def __post_init__(self):
        self.model = T.LlamaForCausalLM(copy.deepcopy(CONFIG)).eval()
        apply(self.model, self.encoding)

    def logits(self, ids, model=None, past=None):
        model = self.model if model is None else model
        return model(ids, past_key_values=past, use_cache=past is not None).logits


APPLICABLE_LEARNED = [name for name in APPLICABLE if name in LEARNED]


@pytest.mark.parametrize(("way", "name"), some(product(KEPT, APPLICABLE_LEARNED), 9))
def test_an_adapted_model_reads_the_weights_as_they_are_now(name, way):
    ids = torch.randint(2, 40, (2, KEYS))
    for frozen in some((True, False), 2):
        with torch.no_grad():
            held = InModel(made(name).requires_grad_(not frozen))
            steps, past = WAYS[way](held), T.DynamicCache(config=held.model.config)
            next(steps)
            for one in ids[:, :-1].split(3, 1):
                held.logits(ids)
                held.logits(one, past=past)
            next(steps, None)
            alone, branch = copy.deepcopy((held.model, past))
            close(held.logits(ids), held.logits(ids.clone(), alone))
            token = held.logits(ids[:, -1:], past=past)
            close(token, held.logits(ids[:, -1:], alone, branch))


class Adapted(Writes):
    """A tiny Llama with an encoding applied, and its cache of keys."""

    @initialize(name=st.sampled_from(APPLICABLE), frozen=st.booleans(), seed=st.integers(0, 2**16))
    def begin(self, name, frozen, seed):
        torch.manual_seed(seed)
        self.encoding = made(name).requires_grad_(not frozen)
        self.held = InModel(self.encoding)
        self.begin_text()

    @rule()
    def begin_text(self):
        self.past = T.DynamicCache(config=self.held.model.config)

    def use(self):
        self.read(4, torch.no_grad)

    @rule(tokens=st.integers(1, 9), mode=st.sampled_from([*MODES.values()]))
    def read(self, tokens, mode):
        with mode():
            ids, alone = torch.randint(2, 40, (2, tokens)), copy.deepcopy(self.held.model)
            close(self.held.logits(ids), self.held.logits(ids, alone))

    @rule(tokens=st.sampled_from([1, 1, 1, 3]))
    @torch.no_grad()
    def step(self, tokens):
        ids = torch.randint(2, 40, (2, tokens))
        alone, branch = copy.deepcopy((self.held.model, self.past))
        close(self.held.logits(ids, past=self.past), self.held.logits(ids, alone, branch))


TestAdapted = run_as(Adapted, 10, 8)
