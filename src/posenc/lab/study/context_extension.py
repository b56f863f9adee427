"""Context extension of a trained RoPE: other frequencies θ, or removal of the RoPE.

pi      every wavelength is `factor` times as long                    (Chen et al. 2023)
ntk     the fastest pair is unchanged, the slowest as in pi           (bloc97 2023)
yarn    fast pairs unchanged, slow pairs as in pi, scores scaled      (Peng et al. 2023)
drope   the RoPE is replaced by NoPE                                  (Gelberg et al. 2025)
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


def extend_rope(model: Transformer, method: str, factor: float, trained: int) -> Transformer:
    """Copy a model and extend the RoPE of its layers; weights are unchanged.

    - `method`: "pi", "ntk", "yarn" or "drope"
    - `factor`: ratio of the new context length to `trained`
    - `trained`: length of the longest training text, in tokens

    Raises ValueError for a model without a RoPE of one axis, and for another method.
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")
    copy = deepcopy(model)
    for layer in copy.attentions():
        layer.encoding = _stretched(layer.encoding, method, factor, trained)
    return copy


def check_encoding(cell: Cell, trained: int = 4096) -> None:
    """Check that the encoding of a run can be constructed and extended.

    - `trained`: length of the longest training text, in tokens

    Raises ValueError for an encoding that cannot be extended, and the errors of its constructor.
    """
    encoding = encoding_of(cell)
    if cell.extend:
        method, factor, _ = EXTEND.fullmatch(cell.extend).groups()  # type: ignore[union-attr]
        if not 1 <= float(factor) <= MOST_FACTOR:
            raise ValueError(
                f"`extend` must have a factor from 1 to {MOST_FACTOR:,}, got {brief(cell.extend)}."
            )
        _stretched(encoding, method, float(factor), trained)


def longer_texts(cell: Cell, task: Task) -> Task | None:
    """Return the task with longer texts for the training that follows a context extension.

    Returns None if the run has no training after an extension.

    Raises ValueError if these texts are too long for a cell.
    """
    extension = EXTEND.fullmatch(cell.extend)
    if extension is None or not extension[3]:
        return None
    if (length := round(task.trained * float(extension[2]))) > LONGEST:
        raise ValueError(
            f"`extend` must train on texts of at most {LONGEST:,} tokens, got {cell.extend!r},"
            f" which needs texts of {length:,}. Use a smaller factor."
        )
    return task.at(length)


def _stretched(encoding: Encoding, method: str, factor: float, trained: int) -> Encoding:
    if not isinstance(encoding, RoPE) or encoding.axes > 1:
        raise ValueError(
            "a model whose context is extended must have a RoPE of one axis, got"
            f" {type(encoding).__name__}. Leave out `extend`, or use rope."
        )
    if method == "drope":
        return NoPE()
    theta, gain = encoding.theta.detach(), encoding.gain
    if method == "pi":
        theta = interpolate(theta, factor)
    elif method == "ntk":
        theta = ntk(theta, factor)
    else:
        # YaRN blends pairs of 1 to 32 turns over the trained length; in a short text the fastest
        # pair makes fewer than 32
        fast = min(32.0, trained / (2 * pi))
        theta, gain = yarn(theta, factor, trained, fast=fast), gain * yarn_gain(factor)
    return RoPE(theta, encoding.dim, gain, encoding.layout, encoding.trailing, encoding.logit_gain)
