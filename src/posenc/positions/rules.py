"""Rules for the position ids of text, pictures, video and sound in vision-language models.

`rules.toml` has the rules of models, by `model_type`, and of published layouts. Tests compare their
position ids with those of transformers and of the authors' code.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import torch

from posenc.support.arguments import brief, count, positive

MOST_AXES = 13  # axes of a config that count tokens
After = Literal["side", "last", "tokens", "extent", "time"]


@dataclass(frozen=True, kw_only=True)
class MultimodalRule:
    """Settings from which the position ids of a vision-language model are computed.

    - `name`: `model_type` of the model
    - `kinds`: kinds of tokens that the model has, as in `multimodal`
    - `axes`: meaning of each axis of the ids: "t" frame, "h" row, "w" column, "tokens" the count of
      tokens, "pictures" the count of pictures in the batch, "span" the count of tokens with smaller
      steps in pictures
    - `merge`: patches along each side that become one token
    - `after`: id of the text after a picture: "side", the start of the picture plus its longer side
      in tokens; "last", one after the largest id of its last token; "tokens", the count of all
      tokens; "extent", one after the start plus the largest offset in it; "time", one after its
      last frame
    - `frames`: True if each frame of a video is numbered like a separate picture, because the text
      between the frames contains their times
    - `merge_time`: frames of a video that become one
    - `per_second`: ids per second of a video; None: one per frame
    - `rounding`: order in which frame, seconds and `per_second` are multiplied in float32 before
      the product is truncated to a whole number: "interval", frame · (per_second · seconds);
      "seconds", (frame · seconds) · per_second; "none", like "seconds", but not truncated
    - `offset`: True if rows and columns count from the start of the picture; False: from 0
    - `steps`: ids from one frame, row and column to the next
    - `centred`: True if rows and columns count from the centre of the frame, which has the id of
      the frame on all axes
    - `span`: ids that a whole picture or video has on the axis "span", in equal steps
    - `newline`: True if each row of a picture ends with one more token
    - `marks`: tokens on each side of interleaved video and sound that share one id
    - `padding`: id of padding
    - `counts`: True if `delta` is computed; False: `delta` is 0
    - `canvas`: True if slices of a picture are placed on a canvas, and `kinds` contains the marks
    - `note`: unusual facts about the rule

    >>> RULES["qwen3_vl"].frames, RULES["qwen2_5_vl"].per_second
    (True, 4)
    """

    name: str
    kinds: tuple[int, ...] = (0, 1, 2)
    axes: tuple[str, ...] = ("t", "h", "w")
    merge: int = 2
    after: After = "side"
    frames: bool = False
    merge_time: int = 1
    per_second: float | None = None
    rounding: Literal["interval", "seconds", "none"] = "interval"
    offset: bool = True
    steps: tuple[float, float, float] = (1, 1, 1)
    centred: bool = False
    span: float | None = None
    newline: bool = False
    marks: int = 1
    padding: int = 0
    counts: bool = True
    canvas: bool = False
    note: str = ""

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the position ids: float32 if some are not whole numbers, otherwise int64."""
        whole = self.rounding != "none" and self.span is None
        whole &= all(float(step).is_integer() for step in self.steps)
        return torch.int64 if whole else torch.float32


def settings(file: str) -> dict[str, Any]:
    """Read a TOML file of this folder, and convert its lists to tuples."""
    text = Path(__file__).with_name(file).read_text("utf-8")
    return _with_tuples(tomllib.loads(text))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(inner) for key, inner in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _rules(tables: Mapping[str, Any]) -> dict[str, MultimodalRule]:
    rules = {}
    for name, table in tables.items():
        for each in (name, *table.pop("also", ())):
            rules[each] = MultimodalRule(name=each, **table)
    return rules


_TABLES = settings("rules.toml")
RULES, LAYOUTS = _rules(_TABLES["models"]), _rules(_TABLES["layouts"])
CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "merge": count,
    "merge_time": count,
    "per_second": positive,
    "axes": lambda axes, _: axes,
}
# Sections of a config that contain its vision settings, the outermost first
_SECTIONS = (
    (),
    ("vision_config",),
    ("thinker_config",),
    ("thinker_config", "vision_config"),
)


def rule_of(rule: Any) -> MultimodalRule:
    """Return the position-id rule for a `model_type`, a layout's name or a model's config.

    Values in the config replace the defaults of its `model_type`.
    """
    if isinstance(rule, MultimodalRule):
        return rule
    if isinstance(rule, str):
        return _named(rule)
    config = rule.to_dict() if hasattr(rule, "to_dict") else rule
    if not isinstance(config, Mapping):
        raise TypeError(
            f"`rule` must be a `model_type`, a config or a `MultimodalRule`, got {brief(rule)}."
        )
    found = _named(config.get("model_type"))
    own: dict[str, Any] = {
        "merge": _key(config, "spatial_merge_size"),
        "merge_time": _key(config, "temporal_merge_size") if found.merge_time > 1 else None,
        "per_second": None,
    }
    for key in ("tokens_per_second", "position_id_per_seconds") if found.per_second else ():
        if own["per_second"] is None:
            own["per_second"] = _key(config, key)
    if found.canvas:
        own["merge"] = {"4x": 2, "16x": 4}.get(str(config.get("downsample_mode")))
    if "pictures" in found.axes:
        own["axes"] = _hunyuan_axes(config)
    checked = {name: CHECKS[name](value, name) for name, value in own.items() if value is not None}
    return replace(found, **checked)


def _named(model_type: Any) -> MultimodalRule:
    name, known = str(model_type).removesuffix("_thinker"), RULES | LAYOUTS
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Pass one of {', '.join(sorted(known))}."
    raise ValueError(f"`rule` must name a model with a known rule, got {model_type!r}. {hint}")


def _key(config: Mapping[str, Any], key: str) -> Any:
    for section in _SECTIONS:
        inner: Any = config
        for name in section:
            inner = _inner(inner, name)
        if inner.get(key) is not None:
            return inner[key]
    return None


def _inner(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the nested config under `key`, or an empty one if it is missing."""
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def _hunyuan_axes(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the name of each position axis of a Hunyuan model.

    Each entry of `mrope_section` has one axis. Returns None for fewer than three entries.
    """
    text = _inner(config, "text_config") or config
    rope = _inner(text, "rope_parameters") or _inner(text, "rope_scaling")
    sections = rope.get("mrope_section") or rope.get("xdrope_section") or ()
    tokens = len(sections) - 3 if isinstance(sections, list | tuple) else -1
    if tokens > MOST_AXES:
        raise ValueError(
            f"`mrope_section` must be at most {MOST_AXES + 3} numbers, got {len(sections)}. Check"
            " the config."
        )
    return ("tokens",) * tokens + ("w", "h", "pictures") if tokens >= 0 else None
