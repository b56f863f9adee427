"""Wavelengths of published models, beside their lengths before stretching and after."""

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from math import inf, pi

from posenc.models.config import specify
from posenc.models.config.spec import Rotary


@dataclass(frozen=True)
class Published:
    """The rotation of a model's layers, of those that see the whole text."""

    name: str
    base: float
    method: str  # "default", or how its frequencies were stretched
    trained: int  # tokens, before they were stretched
    context: int  # tokens that it takes
    wavelengths: list[float]  # tokens, as configured; infinite for pairs that stand still

    @property
    def unfinished(self) -> int:
        """Pairs that complete no turn within the context."""
        return sum(wave > self.context for wave in self.wavelengths)


def configs() -> dict[str, dict[str, object]]:
    """The configs of published.json by name: as published, but for a few layers instead of all."""
    return json.loads((files("posenc.models") / "published.json").read_text("utf-8"))


def models() -> list[Published]:
    """Every model of published.json, those with the shortest context first."""
    described = [_described(name, config) for name, config in configs().items()]
    return sorted(described, key=lambda model: (model.context, max(model.wavelengths)))


def _described(name: str, config: dict[str, object]) -> Published:
    spec = specify(config, name).main
    turning = [layer for layer in spec.layers if isinstance(layer.encoding, Rotary)]
    layer = next((seeing for seeing in turning if not seeing.window), turning[0])
    assert isinstance(layer.encoding, Rotary)
    rotary, context = layer.encoding, spec.context or 0
    theta = replace(rotary, backward=False).theta(context)
    waves = [2 * pi / turns if turns else inf for turns in theta]
    trained = rotary.trained if rotary.method != "default" else context
    return Published(name, rotary.base, rotary.method, trained or context, context, waves)
