"""Sliders: the constants of a graph that an option of the constructor changes, value by value.

    {"base": {"values": [9.77, …, 10000, …], "at": 20, "constants": {"freqs": [{…}, …]}}}

An option has a slider if it is a float, and the graph, run with the constants of another value,
gives what the encoding gives that is made with that value; so no rule says which options do.
"""

from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from posenc.core.encoding import Encoding
from posenc.properties.card import Card

STEPS, DOUBLING = 20, 2  # values on either side of the default; so many steps double it
SHARES = 40  # of values between 0 and 1
NEVER = {"dim", "heads", "width", "freqs"}


def floats(card: Card, encoding: Encoding) -> dict[str, float]:
    """Options that are numbers, with their defaults, of `card.make` and of what it hands them to.

    >>> from posenc import RoPE
    >>> from posenc.catalog import find
    >>> floats(find("rope"), RoPE(8))
    {'base': 10000.0, 'gain': 1.0, 'logit_gain': 1.0}
    """
    source = getattr(card.make, "source", card.make)  # of a user's own
    asked = [*signature(source).parameters.values()]
    if any(one.kind is Parameter.VAR_KEYWORD for one in asked):
        asked += signature(type(encoding)).parameters.values()
    found = {one.name: one.default for one in asked if one.name not in NEVER}
    return {
        name: float(default)
        for name, default in found.items()
        if isinstance(default, float) or (isinstance(default, int) and _is_float(asked, name))
        if not isinstance(default, bool) and 0 < default < torch.inf
    }
