"""How far angles are off when they are formed in few bits.

    error = maxⱼ | fl(p) · fl(θⱼ) − p θⱼ |        radians; fl rounds, the product is in float32

That is what becomes of frequencies kept in a model's dtype. Where it nears 1, neighbours change
places. posenc forms angles in float64 and rounds cos and sin once: `exact` counts that.
"""

import torch

from posenc.shapes import Frequencies

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def phase_error(freqs: Frequencies, position: int, dtype: torch.dtype) -> float:
    """The largest error of any pair's angle at a position, frequencies kept in `dtype`.

    >>> from posenc import frequencies
    >>> round(phase_error(frequencies(128), 4096, torch.bfloat16), 2)
    5.01
    """
    angle = freqs.to(dtype).float() * float(position)
    return float((angle.double() - position * freqs.double()).abs().max())
