"""Published recipes for context extension, from recipes.toml, which cites the source of each."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from posenc.models.config.spec import Spec


@dataclass(frozen=True)
class Recipe:
    """Context extension that the publishers of some models recommend."""

    names: str  # the models
    model_types: tuple[str, ...]  # `model_type` of the config with the rope settings
    context: int  # max_position_embeddings of the published config
    trained: int  # trained tokens
    source: str  # file with the recipe
    read: str  # date of the last check of the source, in ISO format
    method: str = "yarn"
    factors: dict[int, float] = field(default_factory=dict)  # tokens → factor, if not to / trained

    def factor_for(self, to: int | None) -> float | None:
        """Return the published scaling factor for `to` tokens; None means `to` / `trained`."""
        return self.factors.get(to) if to else None


def recipe_of(spec: Spec) -> Recipe | None:
    """Return the recipe for a published model, matched by `model_type` and context length."""
    if any(turn.method != "default" for turn in spec.rotary):
        return None
    return next(
        (one for one in recipes() if spec.model in one.model_types and spec.context == one.context),
        None,
    )


@cache
def recipes() -> tuple[Recipe, ...]:
    """Return every recipe of recipes.toml."""
    content = tomllib.loads((files("posenc.models") / "recipes.toml").read_text("utf-8"))
    return tuple(
        Recipe(
            **line
            | {
                "model_types": tuple(line["model_types"]),
                "factors": {int(to): float(x) for to, x in line.get("factors", {}).items()},
            }
        )
        for line in content["recipe"]
    )
