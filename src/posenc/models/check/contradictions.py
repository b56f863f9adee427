"""Find contradictions between keys of a config that are each valid on their own.

Each function returns a sentence with the values, or "" if there is no contradiction.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from posenc.models.config import families
from posenc.models.config.spec import Rotary, Spec
from posenc.support.text import printable, shown

# Suffixes of class names in transformers, after the name of the model
HEADS = r"For(CausalLM|ConditionalGeneration|MaskedLM|\w*Classification|QuestionAnswering)$"
TASKS = (HEADS, r"LMHeadModel$", r"Model$", r"(Text|Encoder|Decoder)Model$")


def unknown_model(spec: Spec) -> str:
    """Return a warning if the `model_type` of a text model is missing or unknown, otherwise ""."""
    model = spec.text_stack.model
    if families.family(model):
        return ""
    if not model:
        return "model_type is missing, so the code that runs these weights is unknown"
    near = get_close_matches(model.lower().replace("-", "_"), families.model_types(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"model_type: {printable(model)!r} is unknown, and so are its defaults and layout{hint}"


def swapped_bases(spec: Spec) -> str:
    """Report a RoPE base that is larger in layers with a window than in layers without one.

    Full attention has longer distances, and no published model has the smaller base there.
    """
    near, far = (_bases(spec, windowed) for windowed in (True, False))
    if not near or not far or max(near) <= min(far):
        return ""
    return (
        f"layers with a window have the base {max(near):,.10g}, and layers without one the smaller"
        f" base {min(far):,.10g}, so the two seem exchanged"
    )


def _bases(spec: Spec, windowed: bool) -> list[float]:
    turns = ((layer.encoding, layer.window is not None) for layer in spec.layers)
    return [turn.base for turn, near in turns if isinstance(turn, Rotary) and near == windowed]


def window_of_one(spec: Spec) -> str:
    """Report layers with a window of 1, in which a token sees only itself."""
    count = sum(layer.window == 1 for layer in spec.layers if layer.attends)
    return f"a window of 1 token lets each token of {count} layers see only itself" * bool(count)


def other_class(config: Mapping[str, Any], spec: Spec) -> str:
    """Report a class in `architectures` that does not belong to the model's `model_type`.

    Unknown names are ignored, since models may have their own classes.
    """
    named = config.get("architectures")
    for name in named if isinstance(named, list) else []:
        stems = [re.sub(task, "", name) for task in TASKS] if isinstance(name, str) else []
        others = {
            folder for stem in stems if stem != name for folder in _folders().get(_plain(stem), ())
        }
        own = families.family(families.ALIASES.get(spec.model, spec.model))
        if others and own and own.folder not in others:
            return f"architectures is {shown(name)}, but model_type is {shown(spec.model)}"
    return ""


@cache
def _folders() -> dict[str, set[str]]:
    """Map model names, reduced to letters and digits, to their source folders in transformers."""
    found: dict[str, set[str]] = {}
    for name in families.model_types():
        family = families.family(name)
        assert family is not None
        for plain in {_plain(name), _plain(family.folder)}:
            found.setdefault(plain, set()).add(family.folder)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
