"""Find contradictions between the keys of a config that its reader accepts one by one.

Each function returns a sentence that names the values, or "" if it finds nothing.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from posenc.models.config import families
from posenc.models.config.spec import Rotary, Spec
from posenc.support.text import printable, shown

# The ends of a class name of transformers, after the name of its model
HEADS = r"For(CausalLM|ConditionalGeneration|MaskedLM|\w*Classification|QuestionAnswering)$"
TASKS = (HEADS, r"LMHeadModel$", r"Model$", r"(Text|Encoder|Decoder)Model$")


def unknown_model(spec: Spec) -> str:
    """Return the reason why the code of a text model is not known."""
    model = spec.main.model
    if families.family(model):
        return ""
    if not model:
        return "model_type is missing: no key says which code runs these weights"
    near = get_close_matches(model.lower().replace("-", "_"), families.model_types(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"model_type: {printable(model)!r} is not known, so its defaults and layout are not{hint}"
    )


def swapped_bases(spec: Spec) -> str:
    """Compare the bases of layers with a window and of layers that see the whole text.

    Distances are longer in the latter, and no published model gives them the smaller base.
    """
    near, far = (_bases(spec, windowed) for windowed in (True, False))
    if not near or not far or max(near) <= min(far):
        return ""
    return (
        f"layers with a window have the base {max(near):,.10g}, and layers that see the whole text"
        f" the smaller base {min(far):,.10g}: the two are exchanged"
    )


def _bases(spec: Spec, windowed: bool) -> list[float]:
    turns = ((layer.encoding, layer.window is not None) for layer in spec.layers)
    return [turn.base for turn, near in turns if isinstance(turn, Rotary) and near == windowed]


def window_of_one(spec: Spec) -> str:
    """Find layers in which a token sees itself alone."""
    count = sum(layer.window == 1 for layer in spec.layers if layer.attends)
    return f"a window of 1 token lets each token of {count} layers see itself alone" * bool(count)


def other_class(config: Mapping[str, Any], spec: Spec) -> str:
    """Compare `architectures` with `model_type`, by the name of the class up to its task.

    A name that belongs to no known model is left alone: makers have classes of their own.
    """
    named = config.get("architectures")
    for name in named if isinstance(named, list) else []:
        stems = [re.sub(task, "", name) for task in TASKS] if isinstance(name, str) else []
        others = {
            folder for stem in stems if stem != name for folder in _folders().get(_plain(stem), ())
        }
        own = families.family(families.ALIASES.get(spec.model, spec.model))
        if others and own and own.folder not in others:
            return f"architectures is {shown(name)}, and model_type is {shown(spec.model)}"
    return ""


@cache
def _folders() -> dict[str, set[str]]:
    """The folders of transformers in which models of a name are, by its letters and digits."""
    found: dict[str, set[str]] = {}
    for name in families.model_types():
        family = families.family(name)
        assert family is not None
        for plain in {_plain(name), _plain(family.folder)}:
            found.setdefault(plain, set()).add(family.folder)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
