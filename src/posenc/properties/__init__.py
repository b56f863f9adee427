"""Measurements of the properties of encodings, and cards that declare these properties."""

from importlib import import_module
from typing import Any

from posenc.properties.measures import ALL as ALL
from posenc.properties.measures import FAR as FAR
from posenc.properties.measures import NO_ROWS as NO_ROWS
from posenc.properties.measures import ONE_SIDED as ONE_SIDED
from posenc.properties.measures import TOLERANCE as TOLERANCE
from posenc.properties.measures import TOO_FEW as TOO_FEW
from posenc.properties.measures import Finding as Finding
from posenc.properties.measures import Property as Property
from posenc.properties.measures import any_length as any_length
from posenc.properties.measures import bounded as bounded
from posenc.properties.measures import check as check
from posenc.properties.measures import decaying as decaying
from posenc.properties.measures import learned as learned
from posenc.properties.measures import length_independent as length_independent
from posenc.properties.measures import linear_shift as linear_shift
from posenc.properties.measures import norm_constant as norm_constant
from posenc.properties.measures import norm_preserving as norm_preserving
from posenc.properties.measures import order_sensitive as order_sensitive
from posenc.properties.measures import several_axes as several_axes
from posenc.properties.measures import shift_invariant as shift_invariant
from posenc.properties.measures import symmetric as symmetric
from posenc.properties.measures import unique_positions as unique_positions
from posenc.properties.probe import Probe as Probe


def __getattr__(name: str) -> Any:
    """Import `conform` on first use, because it imports the attention layers."""
    if name != "conform":
        raise AttributeError(f"module 'posenc.properties' has no attribute {name!r}")
    return import_module("posenc.properties.conformance").conform
