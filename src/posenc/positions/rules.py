"""Rules for the position ids of text, pictures, video and sound in vision-language models.

Each rule is data. Those of models are read from `get_rope_index` of transformers 5.23.0; those of
layouts, of the authors named in `LAYOUTS`. Tests compare the results.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
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


_SIDE = (
    "The text continues at the longer side of a picture, not after its largest id, so a video with"
    " more frames than rows and columns overlaps the text after it. transformers 4 continues after"
    ' the largest id (`after="last"`).'
)
_QWEN2 = MultimodalRule(name="qwen2_vl", note=_SIDE)
_QWEN3 = MultimodalRule(
    name="qwen3_vl",
    frames=True,
    note="Each frame of a video is a separate run, between timestamps.",
)
_OMNI = MultimodalRule(
    name="qwen2_5_omni",
    kinds=(0, 1, 2, 3),
    after="last",
    per_second=25,
    rounding="seconds",
    marks=2,
    padding=1,
    note=(
        "Sound inside of a video starts at the id of the video, and the two marks on each side of"
        " the block share one id. The text continues after the last token of the block, whose id"
        " may not be the largest."
    ),
)
_LIKE_QWEN3 = (
    *("cohere_compass", "cosmos3_edge", "cosmos3_omni", "glm46v", "glm4v", "glm4v_moe", "glm_ocr"),
    *("qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe", "qwen4_exp"),
)
_OTHERS = (
    _QWEN2,
    replace(_QWEN2, name="paddleocr_vl"),
    replace(
        _QWEN2,
        name="qwen2_5_vl",
        per_second=4,
        note=(
            f"{_SIDE} Published models have 2 ids per second; the default of the class in"
            " transformers is 4. Without seconds, transformers assumes one second per frame."
        ),
    ),
    replace(
        _QWEN2,
        name="ernie4_5_vl_moe",
        merge_time=2,
        note=f"{_SIDE} Two frames of a video become one; pictures are not merged.",
    ),
    replace(
        _QWEN2,
        name="glm_image",
        kinds=(0, 1),
        merge=1,
        padding=1,
        counts=False,
        note=(
            "`delta` is 0, because generated tokens are numbered by grids. Pass the kinds and grids"
            " of the generated pictures, the smallest first, after those of the prompt."
        ),
    ),
    replace(
        _QWEN2,
        name="hunyuan_vl",
        kinds=(0, 1),
        axes=("tokens", "w", "h", "pictures"),
        after="tokens",
        offset=False,
        newline=True,
        note=(
            "Rows and columns count from 0 in each picture, and text counts all tokens. The last"
            " axis counts pictures across the batch, so the ids of a text depend on the texts"
            " before it. A run may begin and end with a mark, which counts as text."
        ),
    ),
    _OMNI,
    replace(
        _OMNI,
        name="qwen3_omni_moe",
        rounding="none",
        marks=1,
        padding=0,
        note=(
            "Times are not truncated to whole numbers, so ids are float32. Sound inside of a video"
            " starts at the id of the video. The text continues after the last token of the block,"
            " whose id may not be the largest. transformers interleaves ids by rounded sums; if"
            " rounding lifts a time above a whole number, its ids differ by one token from the"
            " order of its processor, which `kinds` has."
        ),
    ),
    MultimodalRule(
        name="minicpmv4_7",
        kinds=(0, 1, 2, 4, 5),
        merge=4,
        frames=True,
        canvas=True,
        note=(
            "A thumbnail and its slices are placed on one canvas. Each of them has its own grid,"
            " and `kinds` contains the marks: 4, or 5 before a slice."
        ),
    ),
)
RULES: dict[str, MultimodalRule] = {rule.name: rule for rule in _OTHERS} | {
    name: replace(_QWEN3, name=name) for name in _LIKE_QWEN3
}
_LAYOUT = MultimodalRule(name="mrope", after="extent")
_RESET = replace(_LAYOUT, name="omnirope", offset=False)
# Layouts by the names of github.com/JJJYmmm/Multimodal-RoPEs, commit cd413b9e of 2026-05-04,
# multimodal_ropes/pos_design, with whole videos instead of separate frames
LAYOUTS: dict[str, MultimodalRule] = {
    rule.name: rule
    for rule in (
        replace(_LAYOUT, name="vanilla-rope", axes=("tokens",), after="tokens"),
        _LAYOUT,
        replace(_LAYOUT, name="mmrope", note="Pass `steps` to scale frames, rows and columns."),
        replace(_RESET, name="mrope-interleave", note="With `offset=True` it is that of Qwen3-VL."),
        replace(_RESET, name="mhrope"),
        _RESET,
        replace(_RESET, name="ilrope"),
        replace(_LAYOUT, name="videorope", after="time", steps=(2, 1, 1), centred=True),
        replace(
            _LAYOUT,
            name="hope",
            after="time",
            centred=True,
            note="In training, the step of frames is drawn for each video from 0.5, 0.75, …, 1.5.",
        ),
        replace(
            _LAYOUT,
            name="v2pe",
            axes=("span",),
            span=16.0,
            note="In training, V2PE draws the span.",
        ),
    )
}
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
    """Return the rule of a `model_type`, a layout or a config.

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
