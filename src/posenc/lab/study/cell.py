"""A cell of a study: one training run, identified by the hash of all its settings.

Two runs of the same cell give the same bits on the CPU, so a cell that is in the store is done.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any

from torch import Tensor

from posenc.support.arguments import brief, precision

# The version of the settings. A setting whose meaning changes needs a new number, because the
# digests of stored cells are computed from it.
FORMAT = 1
CONTROLS = ("", "window", "shuffled")
EXTEND = re.compile(r"(pi|ntk|yarn|drope) (\d+(?:\.\d+)?)(?: after ([1-9]\d{0,8}))?")
WORDS = {"label", "source"}  # fields that do not affect the outcomes
LONGEST = 2**20  # greatest length n of a text, in the unit of its task
# The largest settings of a profile
MOST = {
    "width": 2**16, "heads": 2**10, "layers": 2**10, "steps": 2**31, "batch": 2**20,
    "warmup": 2**31, "prompts": 2**24,
}  # fmt: skip
DEEPEST = 16  # greatest nesting of lists and tables


@dataclass(frozen=True)
class Profile:
    """The sizes of the model, and the settings of its training."""

    width: int = 64
    heads: int = 4
    layers: int = 2
    steps: int = 800
    batch: int = 64  # texts in a step
    rate: float = 1e-3  # AdamW's learning rate after the warm-up; a cosine lowers it to a tenth
    warmup: int = 100  # steps
    prompts: int = 200  # prompts for each tested length

    @property
    def weights(self) -> int:
        """The number of weights in the linear layers of all blocks, a measure of model size."""
        return 12 * self.width**2 * self.layers


PROFILES = {
    "smoke": Profile(),
    "cpu": Profile(layers=4, steps=5_000, prompts=500),
    "gpu": Profile(width=256, heads=8, layers=6, steps=20_000, batch=128, prompts=1_000),
}


@dataclass(frozen=True)
class Cell:
    """The settings of one training run: encoding, task, seed, model sizes and training.

    - `task`: name of a task, or "module.py:mine"
    - `encoding`: name in the catalogue, or "module.py:Mine"
    - `seed`: seed of the run
    - `label`: name of the encoding in tables; empty: `encoding`
    - `options`: keyword arguments of the encoding's constructor besides `dim` and `heads`, as JSON
    - `profile`: sizes of the model and of its training
    - `trained`, `tested`: lengths of the task; None and () for the task's own
    - `positions`: positions in training: "plain" for 0, 1, 2, …, or "random 2048" for positions
      drawn anew from 0 … 2047 in each step and sorted (Ruoss et al. 2023)
    - `control`: "", or "window" (attention reaches as far back as the longest training text is
      long), or "shuffled" (positions are permuted within each text)
    - `extend`: context extension of the trained RoPE before the test, such as "yarn 2", or
      "yarn 2 after 100" with 100 further steps on longer texts
    - `data_seed`: seed of the order of the data; None: `seed`
    - `data`: SHA-256 of the content of `source`
    - `source`: file of a text or of images
    - `precision`: with "bfloat16" the products of the model's linear maps are rounded to bfloat16
      in training; weights, sums, attention, encodings and tests stay in float32
    - `told`: length in tokens of the longest training text. Encodings with a setting for the
      trained length or the direction of attention receive both; None: they keep their defaults
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
    extend: str = ""
    data_seed: int | None = None
    data: str = ""
    source: str = ""
    precision: str = "float32"
    told: int | None = None

    def __post_init__(self) -> None:
        if self.control not in CONTROLS:
            known = ", ".join(map(repr, CONTROLS))
            raise ValueError(f"`control` must be one of {known}, got {self.control!r}.")
        if self.positions != "plain":
            kind, _, most = self.positions.partition(" ")
            if kind != "random" or not most.isdecimal() or not int(most):
                raise ValueError(
                    '`positions` must be "plain", or "random 2048" for positions drawn below 2048,'
                    f" got {self.positions!r}."
                )
        precision(self.precision)
        if self.extend and not EXTEND.fullmatch(self.extend):
            raise ValueError(
                '`extend` must be "pi 2", "ntk 2", "yarn 2" or "drope 2", optionally followed by'
                f' " after 100" (steps), got {self.extend!r}.'
            )

    @property
    def name(self) -> str:
        """The name of this run in tables: its label, or the encoding's name if it has no label."""
        return self.label or self.encoding

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as JSON values, without label and source, which do not affect outcomes."""
        written = asdict(self)
        kept = {name: value for name, value in written.items() if name not in WORDS}
        # Stored cells from before these settings existed must keep their digest
        if self.precision == "float32":
            del kept["precision"]
        if self.told is None:
            del kept["told"]
        return {"format": FORMAT, **json.loads(json.dumps(kept))}

    @property
    def digest(self) -> str:
        """The identity of this run: sixteen hexadecimal digits of the SHA-256 of its settings."""
        return digest_of(self.settings)

    @classmethod
    def of(cls, settings: Mapping[str, Any], label: str = "", source: str = "") -> "Cell":
        """Make a `Cell` from the settings of a training run, as they are stored in a file.

        Raises ValueError for settings of another format, and for unknown names or invalid values.
        """
        known = {setting.name for setting in fields(cls)} - WORDS
        rest = {name: value for name, value in settings.items() if name != "format"}
        if settings.get("format") != FORMAT or set(rest) - known:
            odd = ", ".join(sorted(set(rest) - known)) or f"format {settings.get('format')!r}"
            raise ValueError(
                f"a training run must have settings of format {FORMAT}, got {odd}. Use the version"
                " of posenc that wrote these settings."
            )
        for name, value in rest.items():
            check_setting(name, value)
        profile = Profile(**rest.pop("profile"))
        tested = tuple(rest.pop("tested"))
        return cls(**rest, label=label, source=source, profile=profile, tested=tested)

    @property
    def drawn_below(self) -> int | None:
        """The number below which random positions are drawn; None if positions are not random."""
        return None if self.positions == "plain" else int(self.positions.split()[1])


def check_setting(name: str, value: Any) -> None:
    """Raise ValueError if the setting `name` of a training run cannot have this value."""
    if not _fits(name, value):
        raise ValueError(
            f"`{name}` must be a valid setting of a training run, got {brief(value)}. Correct its"
            " type or range."
        )


def too_deep(value: Any, most: int = DEEPEST) -> bool:
    """Test whether lists and tables are nested more deeply than `most` levels."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | Mapping)
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
    return bool(level)


def _fits(name: str, value: Any) -> bool:
    """Test whether a training run's setting, as read from a file, has the right type and range."""
    match name:
        case "profile":
            return isinstance(value, dict) and all(_fits(*item) for item in value.items())
        case "rate":
            return isinstance(value, int | float) and 0 < value < 1e9
        case "options":
            return isinstance(value, dict) and not too_deep(value)
        case "tested":
            return isinstance(value, list) and all(_whole(n, 0, LONGEST) for n in value)
        case "trained" | "told":
            return value is None or _whole(value, 1, LONGEST)
        case "seed" | "data_seed":
            return (value is None and name == "data_seed") or _whole(value, 0, 2**53)
    if name in MOST:
        return _whole(value, 0 if name == "warmup" else 1, MOST[name])
    return isinstance(value, str)


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def digest_of(settings: Mapping[str, Any]) -> str:
    """Return the digest that identifies the training run with these settings."""
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Result:
    """The result of a training run.

    On the CPU, repeated runs give the same bits in all values except `seconds`.

    - `outcomes`: by protocol and length, a vector over prompts. Bool if a prompt is right or wrong
      ("forced": every answer is the likeliest token after the true ones; "generated": after the
      model's own), or float32 for bits per character ("sliding", "apart")
    - `losses`: mean loss of each 50 steps
    - `parameters`: number of parameters of the model
    - `seconds`: median time of a training step
    """

    outcomes: Mapping[tuple[str, int], Tensor]
    losses: tuple[float, ...]
    parameters: int
    seconds: float
