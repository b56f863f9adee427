"""Write docs/extend_cases.md: the method that `posenc extend --prove` chooses, in 40 cases.

    python tools/extend_cases.py            half an hour on one core
    python tools/extend_cases.py --page     the page again, from the stored results

Ten small models are trained on letters of the packaged novel, some with a scaling that their config
does not state, so that `prove` has to find it. Each model is extended to four longer lengths.
`prove` chooses a method on one part of the novel; the best method is measured on another part that
neither training nor choice has used. tests/extend_cases.json stores the results of each model. A
run that was interrupted continues with the next model; delete the file to measure all again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from posenc.analysis.text import novel_letters
from posenc.models.check.loss import opened
from posenc.models.prove import (
    AS_IT_IS,
    ENOUGH,
    Proof,
    _far_bits,
    _remapped,
    _sliding,
    prove,
)

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/extend_cases.md"
STORE = ROOT / "tests/extend_cases.json"
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
    remapped: dict[str, float]  # bits of methods without training, which no config can state

    @property
    def best(self) -> str:
        """The method with the lowest loss, or "" if reading only the last tokens is as good."""
        way = min(self.bits, key=lambda name: self.bits[name])
        return way if self.bits[way] < self.sliding - ENOUGH else ""

    @property
    def best_remapped(self) -> str:
        """The method with the lowest loss that needs no training, or "" if none was measured."""
        return min(self.remapped, key=lambda name: self.remapped[name], default="")

    @property
    def least_remapped(self) -> float:
        return self.remapped[self.best_remapped]

    @property
    def right(self) -> bool:
        """Test whether the chosen method is the best one, or differs from it negligibly."""
        if not self.chosen or not self.best:
            return self.chosen == self.best
        return self.bits[self.chosen] < self.bits[self.best] + ENOUGH


def judged(folder: Path, proof: Proof) -> Case:
    """Measure the bits per token of each extension method on the test part of the novel."""
    with opened(folder) as model:
        ids: Tensor = model.excerpts(parts()[2], proof.to, FRESH)
        bits = {w.name: _far_bits(model, w.config, ids, proof.trained) for w in proof.ways}
        plain = next(w.config for w in proof.ways if w.name == AS_IT_IS)
        # Either loss is that of half of the pieces
        remapped = {
            w.name: fmean((w.chosen_by, w.far))
            for w in _remapped(model, plain, ids, proof.trained, [])
        }
        return Case(proof.to, proof.chosen, bits, _sliding(model, ids, proof.trained), remapped)


def cases(folder: Path, factors: tuple[int, ...] = FACTORS) -> Iterator[Case]:
    for factor in factors:
        yield judged(folder, prove(folder, LENGTH * factor, parts()[1]))


def page(store: dict[str, Any]) -> str:
    """Return docs/extend_cases.md as Markdown, from the stored results."""
    rows = [(name, Case(**case)) for name, several in store["models"].items() for case in several]
    cases = [case for _, case in rows]
    measured = [case for case in cases if case.remapped]
    lines = [
        "# Does `posenc extend --prove` choose the best method?",
        "",
        f"`make cases` wrote this page on {store['date']} with transformers"
        f" {store['transformers']}. The script trains {len(store['models'])} small models of two"
        f" layers for {STEPS} steps on letters of the packaged novel; each letter is a token. The"
        f" config of each model states {LENGTH} tokens and no scaling, even if the model was"
        " trained on longer texts or with a scaling. `posenc extend --prove` extends the context of"
        " each model to four lengths, and chooses a method on one part of the novel. The script"
        f" then measures the loss of each method on {FRESH} pieces of another part of the novel."
        f" The baseline is the unmodified model that reads only the last {LENGTH} tokens. A choice"
        f" is right if its loss is at most {ENOUGH} bits per token higher than the loss of the best"
        " method. The choice “none” means that `extend` chooses no method; this choice is right if"
        f" no method is better than the baseline by {ENOUGH} bits per token.",
        "",
        "ReRoPE, Self-Extend and dual chunk attention also extend a model without training. These"
        " three methods change attention, which a config cannot state, so `extend --prove` measures"
        " the three methods but never chooses them. The column “remapped” of the table has the best"
        " of the three methods, and the last column of numbers has the loss of this method in bits"
        " per token on the same pieces of text. Both columns are blank for a model that rotates"
        " only some channels of each head, for which `extend --prove` does not measure the three"
        " methods.",
        "",
        f"- cases: {len(rows)}",
        f"- cases in which the choice is right: {sum(case.right for case in cases)}",
        f"- cases in which the choice is the best method: {sum(c.chosen == c.best for c in cases)}",
        f"- cases in which a method helps: {sum(case.best != '' for case in cases)}",
        "- cases in which ReRoPE, Self-Extend and dual chunk attention were measured:"
        f" {len(measured)}",
        "- cases in which the best of these three methods helps:"
        f" {sum(c.least_remapped < c.sliding - ENOUGH for c in measured)}",
        "- cases in which the best of these three methods is also better than every method that a"
        " config can state:"
        f" {sum(c.least_remapped < min(c.sliding, *c.bits.values()) - ENOUGH for c in measured)}",
        "",
        "| model | extended to, tokens | chosen | best | bits per token, chosen | bits per token,"
        " best method | bits per token, baseline | remapped | bits per token, remapped | |",
        "| --- | --: | --- | --- | --: | --: | --: | --- | --: | --- |",
    ]
    for name, case in rows:
        chosen = case.bits.get(case.chosen, case.sliding)
        least = f"{case.least_remapped:.3f}" if case.remapped else ""
        lines.append(
            f"| {name} | {case.to} | {case.chosen or 'none'} | {case.best or 'none'} |"
            f" {chosen:.3f} | {min(case.bits.values()):.3f} | {case.sliding:.3f} |"
            f" {case.best_remapped} | {least} | {'' if case.right else 'wrong'} |"
        )
    return "\n".join(lines) + "\n"


def stored() -> dict[str, Any]:
    """Return the stored results of earlier runs, or an empty record."""
    if STORE.exists():
        return json.loads(STORE.read_text("utf-8"))
    return {"date": "", "transformers": version("transformers"), "models": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure extension methods on forty cases.")
    parser.add_argument("--page", action="store_true", help="from the stored results alone")
    torch.set_num_threads(1)
    record = stored()
    missing = [model for model in MODELS if model.name not in record["models"]]
    for model in [] if parser.parse_args().page else missing:
        with tempfile.TemporaryDirectory() as work:
            found = [*cases(make(model, Path(work)))]
        for case in found:
            said = "right" if case.right else "wrong"
            print(f"{model.name}, {case.to}: {case.chosen!r}, best {case.best!r}: {said}")
        record["models"][model.name] = [asdict(case) for case in found]
        record["date"] = datetime.date.today().isoformat()
        STORE.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(record), "utf-8")
    rows = [Case(**case) for several in record["models"].values() for case in several]
    print(f"{sum(case.right for case in rows)} of {len(rows)} right")
    if sum(case.right for case in rows) < 0.9 * len(rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
