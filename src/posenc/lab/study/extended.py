"""A trained RoPE made to read longer texts: its θ stretched, or left out.

pi      every wavelength `factor` times as long             (Chen et al. 2023)
ntk     the fastest pair as it is, the slowest as in pi     (bloc97 2023)
yarn    by parts, and scores scaled                         (Peng et al. 2023)
drope   no positions any more                               (Gelberg et al. 2025)
"""

from copy import deepcopy
from math import pi

from posenc.core.encoding import Encoding
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.extension import interpolate, ntk, yarn, yarn_gain
from posenc.encodings.rotary.rope import RoPE
from posenc.lab.study.build import encoding_of
from posenc.lab.study.cell import EXTEND, LONGEST, Cell
from posenc.lab.study.model import Transformer
from posenc.lab.study.tasks import Task
from posenc.support.arguments import brief

MOST_FACTOR = 1_000_000
METHODS = ("pi", "ntk", "yarn", "drope")


def extended(model: Transformer, method: str, factor: float, trained: int) -> Transformer:
    """Copy a model, its RoPE stretched by `factor`; `trained` is in tokens.

    Weights stay as they are. Raises ValueError for a model that does not turn, or another method.
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")
    copy = deepcopy(model)
    for layer in copy.attentions():
        layer.encoding = _stretched(layer.encoding, method, factor, trained)
    return copy


def check_encoding(cell: Cell, trained: int = 4096) -> None:
    """Make the encoding of a cell, and extend it as the cell says; `trained` is in tokens.

    Raises ValueError, and whatever its constructor raises, where that cannot be.
    """
    encoding = encoding_of(cell)
    if cell.extend:
        method, factor, _ = EXTEND.fullmatch(cell.extend).groups()  # type: ignore[union-attr]
        if not 1 <= float(factor) <= MOST_FACTOR:
            raise ValueError(
                f"`extend` must be by a factor from 1 to {MOST_FACTOR:,}, got {brief(cell.extend)}."
            )
        _stretched(encoding, method, float(factor), trained)


def longer_texts(cell: Cell, task: Task) -> Task | None:
    """The texts on which a cell is trained once it is extended; None: it is not trained any more.

    Raises ValueError where they are too long for a cell.
    """
    asked = EXTEND.fullmatch(cell.extend)
    if asked is None or not asked[3]:
        return None
    if (length := round(task.trained * float(asked[2]))) > LONGEST:
        raise ValueError(
            f"`extend` {cell.extend!r} trains on texts of {length:,}, and {LONGEST:,} are the most:"
            " stretch it by less."
        )
    return task.at(length)


def _stretched(encoding: Encoding, method: str, factor: float, trained: int) -> Encoding:
    if not isinstance(encoding, RoPE) or encoding.axes > 1:
        raise ValueError(
            f"only a RoPE of one axis can be extended, this model has {type(encoding).__name__}."
        )
    if method == "drope":
        return NoPE()
    theta, gain = encoding.theta.detach(), encoding.gain
    if method == "pi":
        theta = interpolate(theta, factor)
    elif method == "ntk":
        theta = ntk(theta, factor)
    else:
        # between 1 and 32 turns as deployed; in short texts no pair makes 32
        fast = min(32.0, trained / (2 * pi))
        theta, gain = yarn(theta, factor, trained, fast=fast), gain * yarn_gain(factor)
    return RoPE(theta, encoding.dim, gain, encoding.layout, encoding.trailing, encoding.logit_gain)
