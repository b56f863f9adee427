"""A cell of a study: one training run, named by the hash of all its settings.

Two runs of the same cell make the same bits on the CPU, so a cell that is in the store is done.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

from torch import Tensor

FORMAT = 1  # of settings; a change of meaning changes it, so that old cells keep their names


@dataclass(frozen=True)
class Profile:
    """Sizes of the model and of its training."""

    width: int = 64
    heads: int = 4
    layers: int = 2
    steps: int = 800
    batch: int = 64  # texts in a step
    rate: float = 1e-3  # of AdamW, at the end of the warm-up; a cosine takes it to a tenth
    warmup: int = 100  # steps
    prompts: int = 200  # for each tested length


PROFILES = {
    "smoke": Profile(),
    "cpu": Profile(layers=4, steps=5_000, prompts=500),
    "gpu": Profile(width=256, heads=8, layers=6, steps=20_000, batch=128, prompts=1_000),
}


@dataclass(frozen=True)
class Cell:
    """One encoding, one task, one seed.

    `encoding` is a name of the catalogue or `module.py:Mine`, `options` is what its constructor is
    given beside `dim` and `heads`, as JSON has it; `label` is its name in tables. `trained` and
    `tested` are lengths of the task, None and () for the task's own. `positions` are those of
    training: "plain", or "random 2048", drawn anew from 0 … 2047 in each step, in order (Ruoss et
    al. 2023). `control` replaces the encoding's reach: "", "window", "shuffled".
    """

    task: str
    encoding: str
    seed: int
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: Profile = Profile()
    trained: int | None = None
    tested: tuple[int, ...] = ()
    positions: str = "plain"
    control: str = ""

    @property
    def name(self) -> str:
        """What tables call the encoding."""
        return self.label or self.encoding

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as JSON has them; the label, which changes nothing, is left out."""
        written = asdict(self)
        del written["label"]
        return {"format": FORMAT, **json.loads(json.dumps(written))}

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits of the SHA-256 of the settings."""
        canonical = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return sha256(canonical.encode()).hexdigest()[:16]

    @classmethod
    def of(cls, settings: Mapping[str, Any], label: str = "") -> "Cell":
        """The cell of settings, as `settings` gives them.

        Raises ValueError for those of another version or with names that are not known.
        """
        known = {one.name for one in fields(cls)} - {"label"}
        rest = {name: value for name, value in settings.items() if name != "format"}
        if settings.get("format") != FORMAT or set(rest) - known:
            odd = ", ".join(sorted(set(rest) - known)) or f"format {settings.get('format')!r}"
            raise ValueError(f"a cell has settings of format {FORMAT}: {odd} is not known to it.")
        profile = Profile(**rest.pop("profile"))
        tested = tuple(rest.pop("tested"))
        return cls(**rest, label=label, profile=profile, tested=tested)

    def with_seed(self, seed: int) -> "Cell":
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Result:
    """What a cell came to. All but `seconds` is the same each time, to the bit, on the CPU.

    `outcomes` has a vector over prompts for each protocol and length: bool, where a prompt is right
    or wrong ("forced": every answer is the likeliest token after the true ones; "generated": after
    its own), or float32, bits per character ("sliding", "apart"). `losses` is the mean loss of each
    50 steps. `seconds` is the median time of a training step.
    """

    outcomes: Mapping[tuple[str, int], Tensor]
    losses: tuple[float, ...]
    parameters: int
    seconds: float
