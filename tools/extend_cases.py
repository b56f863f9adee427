"""Write docs/extend_cases.md: the method that `posenc extend --prove` chooses, in 40 cases.

    python tools/extend_cases.py [--models N]      a quarter of an hour on one core

Ten small models are trained on letters of the packaged novel, some with a scaling that their config
does not state, so that `prove` has to find it. Each model is extended to four longer lengths.
`prove` chooses a method on one part of the novel; the best method is measured on another part that
neither training nor choice has used.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from posenc.analysis.text import novel_letters
from posenc.models.check.loss import opened
from posenc.models.prove import ENOUGH, Proof, _far_bits, _sliding, prove

PAGE = Path(__file__).parent.parent / "docs/extend_cases.md"
LENGTH = 64  # tokens of training, as stated in the config
FACTORS = (2, 3, 4, 8)
STEPS, ROWS, RATE = 500, 32, 3e-3
FRESH = 12  # stretches of text on which the methods are compared
SIZE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
REST = dict(pad_token_id=0, bos_token_id=1, eos_token_id=1, tie_word_embeddings=False)

WORDS = {"linear": "linear scaling", "yarn": "YaRN", "llama3": "Llama 3's scaling"}


@dataclass(frozen=True)
class Model:
    """A model to train: its class, its RoPE base, and a scaling that its config will not state."""

    kind: str
    base: float = 10_000.0
    hidden: dict[str, Any] | None = None
    times: int = 1  # trained on that many times `LENGTH`
    seed: int = 0
    more: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        share = ", half of the channels rotate" if self.more else ""
        hidden = self.hidden or {}
        stated = " in the config" if "rope_theta" in hidden else ""
        way = ""
        if hidden:
            way = " with "
            way += WORDS.get(
                hidden.get("rope_type", ""), f"base {hidden.get('rope_theta', 0):,.0f}"
            )
        return (
            f"{self.kind}, base {self.base:,.0f}{stated}{share},"
            f" trained on {self.times * LENGTH} tokens{way}"
        )


def scaled(times: int, kind: str) -> dict[str, Any]:
    more = {"original_max_position_embeddings": LENGTH} if kind != "linear" else {}
    more |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    return dict(rope_type=kind, factor=float(times), **more)


MODELS = (
    Model("Llama"),
    Model("Llama", 500_000.0),
    Model("Llama", hidden=scaled(2, "linear"), times=2),
    Model("Llama", hidden=scaled(4, "yarn"), times=4),
    Model("Llama", hidden=dict(rope_theta=100_000.0), times=4),
    Model("Llama", times=2),
    Model("GPTNeoX", hidden=scaled(4, "linear"), times=4, more=dict(partial_rotary_factor=0.5)),
    Model("Qwen3", seed=1),
    Model("Qwen3", hidden=scaled(3, "yarn"), times=3, seed=2),
    Model("Mistral", hidden=scaled(4, "llama3"), times=4, seed=3),
)


def parts() -> tuple[str, str, str]:
    """Split the novel into three parts: for training, for choosing a method, and for the test."""
    letters = novel_letters()
    a, b = len(letters) * 6 // 10, len(letters) * 8 // 10
    return letters[:a], letters[a:b], letters[b:]


def make(model: Model, folder: Path, steps: int = STEPS) -> Path:
    """Train a model, and write it with a config that does not state its scaling."""
    letters = novel_letters()
    known = {letter: number + 2 for number, letter in enumerate(sorted(set(letters)))}
    torch.manual_seed(model.seed)
    rope = dict(rope_type="default", rope_theta=model.base) | (model.more or {})
    trained = LENGTH * model.times
    sizes: dict[str, Any] = SIZE | REST | dict(vocab_size=len(known) + 2)
    if model.kind != "GPTNeoX":
        sizes |= dict(num_key_value_heads=2)
    if model.kind in ("Mistral", "Qwen3"):
        sizes |= dict(head_dim=16, sliding_window=None)
    config = getattr(transformers, f"{model.kind}Config")(
        **sizes, max_position_embeddings=trained, rope_parameters=rope | (model.hidden or {})
    )
    network = getattr(transformers, f"{model.kind}ForCausalLM")(config)
    ids = torch.tensor([known[letter] for letter in parts()[0]])
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.0)
    rows = ROWS // model.times
    for _ in range(steps):
        starts = torch.randint(0, len(ids) - trained, (rows,))
        batch = ids[starts[:, None] + torch.arange(trained)]
        batch[:, 0] = REST["bos_token_id"]
        network(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    network.save_pretrained(folder)
    said = json.loads((folder / "config.json").read_text("utf-8"))
    said |= {"max_position_embeddings": LENGTH, "rope_parameters": rope}
    (folder / "config.json").write_text(json.dumps(said, indent=2), "utf-8")
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1} | known, "<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@dataclass(frozen=True)
class Case:
    """The method chosen for a length, and each method's bits per token on unused text."""

    to: int
    chosen: str  # "" if `prove` found no method that works
    bits: dict[str, float]  # of each way
    sliding: float

    @property
    def best(self) -> str:
        """The method with the lowest loss, or "" if reading only the last tokens is as good."""
        way = min(self.bits, key=lambda name: self.bits[name])
        return way if self.bits[way] < self.sliding - ENOUGH else ""

    @property
    def right(self) -> bool:
        """Test whether the chosen method is the best one, or differs from it negligibly."""
        if not self.chosen or not self.best:
            return self.chosen == self.best
        return self.bits[self.chosen] < self.bits[self.best] + ENOUGH


def judged(folder: Path, proof: Proof) -> Case:
    """Measure the bits per token of each extension method on the test part of the novel."""
    with opened(folder) as model:
        ids: Tensor = model.stretches(parts()[2], proof.to, FRESH)
        bits = {w.name: _far_bits(model, w.config, ids, proof.trained) for w in proof.ways}
        return Case(proof.to, proof.chosen, bits, _sliding(model, ids, proof.trained))


def cases(folder: Path, factors: tuple[int, ...] = FACTORS) -> Iterator[Case]:
    for factor in factors:
        yield judged(folder, prove(folder, LENGTH * factor, parts()[1]))


def page(found: dict[str, list[Case]], date: str) -> str:
    rows = [(name, case) for name, several in found.items() for case in several]
    right, same = sum(c.right for _, c in rows), sum(c.chosen == c.best for _, c in rows)
    worth = sum(c.best != "" for _, c in rows)
    lines = [
        "# Does `posenc extend --prove` choose the best method?",
        "",
        f"Written by `make cases` on {date} with transformers {version('transformers')}:"
        f" {len(found)} models of two layers, trained here for {STEPS} steps on letters of the",
        f"packaged novel; a token is a letter. All configs state {LENGTH} tokens and no scaling,"
        " even if the model was trained on longer texts or with a scaling. `prove` extends",
        "each model to four lengths. It chooses the method on one part of the novel, and the choice"
        f" is judged on {FRESH} pieces of another part. The baseline is the unmodified model",
        f"that reads only the last {LENGTH} tokens. A choice is right if its loss is that of the"
        f" best method or at most {ENOUGH} bits a token more. “None” means that no method is",
        f"chosen, and is right if no method is better than the baseline by {ENOUGH} bits a token.",
        "",
        f"- cases: {len(rows)}",
        f"- right: {right}",
        f"- cases in which the choice equals the best: {same}",
        f"- cases in which a method helps: {worth}",
        "",
        "| model | extended to, tokens | chosen | best | bits a token, chosen | bits a token, best"
        " method | bits a token, baseline | |",
        "| --- | --: | --- | --- | --: | --: | --: | --- |",
    ]
    for name, case in rows:
        least = min(case.bits.values())
        chosen = case.bits.get(case.chosen, case.sliding)
        lines.append(
            f"| {name} | {case.to} | {case.chosen or 'none'} | {case.best or 'none'} |"
            f" {chosen:.3f} | {least:.3f} | {case.sliding:.3f} | {'' if case.right else 'wrong'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=len(MODELS), help="fewer, and no page")
    count = parser.parse_args().models
    torch.set_num_threads(1)
    found: dict[str, list[Case]] = {}
    with tempfile.TemporaryDirectory() as work:
        for number, model in enumerate(MODELS[:count]):
            folder = make(model, Path(work) / f"{number}")
            found[model.name] = []
            for case in cases(folder):
                found[model.name].append(case)
                said = "right" if case.right else "wrong"
                print(f"{model.name}, {case.to}: {case.chosen!r}, best {case.best!r}: {said}",
                      flush=True)  # fmt: skip
    if count == len(MODELS):
        PAGE.write_text(page(found, datetime.date.today().isoformat()), "utf-8")
    rows = [case for several in found.values() for case in several]
    print(f"{sum(case.right for case in rows)} of {len(rows)} right")
    if sum(case.right for case in rows) < 0.9 * len(rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
