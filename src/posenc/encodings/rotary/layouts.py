"""Named layouts for video, which assign each pair of channels to one axis.

    vanilla-rope, v2pe        one axis
    mrope, omnirope           t … t h … h w … w           contiguous
    mrope-interleave, ilrope  t h w t h w … t t           interleaved
    videorope                 h w h w … t … t             time has the slowest pairs
    hope                      like videorope, but time does not turn
    mmrope                    t t h w h w h w, repeated
    mhrope                    all pairs of a head follow one axis

`positions.multimodal(kinds, name, …)` returns the position ids of the same layout, and any of these
θ may be combined with any ids of three axes. Pass θ to `RoPE`; that of mhrope, (axis, head, pair),
to `Mixed(dim, heads, freqs=…, learned=False)`.

Huang et al. 2025, "Revisiting Multimodal Positional Encoding in Vision-Language Models",
arXiv:2510.23095, whose code (JJJYmmm/Multimodal-RoPEs at cd413b9e) has these names. VideoRoPE is as
its own authors have it (Wiselnn570/VideoRoPE at 7712ca3f); the former gives pair 0 to time too.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.core.frequencies import theta
from posenc.core.shapes import Frequencies
from posenc.encodings.rotary.mrope import mrope, pairs_of_axes, spatial_first
from posenc.positions.rules import LAYOUTS
from posenc.support.arguments import brief

META = (0, 0, 1, 2, 1, 2, 1, 2)  # axes of eight pairs of MM-RoPE


def by_layout(name: str, freqs: Frequencies, sections: Sequence[int] = ()) -> Tensor:
    """Return the frequencies θ of a named layout.

    The shape is (axis, pair), or (pair,) for one axis, or (axis, head, pair) for "mhrope".

    - `name`: one of the names above
    - `freqs`: θ, a vector (pair,) in radians per token
    - `sections`: pairs of time, rows and columns; for "mhrope" heads of each; others ignore them

    Raises ValueError for another name, and for sections that do not fit.

    >>> by_layout("hope", torch.tensor([1.0, 0.5, 0.25]), (1, 1, 1)).tolist()
    [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
    """
    freqs = theta(freqs)
    match name:
        case "vanilla-rope" | "v2pe":
            return freqs
        case "mrope" | "omnirope":
            return mrope(freqs, sections)
        case "mrope-interleave" | "ilrope":
            return mrope(freqs, sections, interleaved=True)
        case "mmrope":
            axes = torch.tensor(META).repeat(len(freqs) // len(META) + 1)[: len(freqs)]
            return _by_axis(axes.to(freqs.device)) * freqs
        case "mhrope":
            heads = torch.tensor(pairs_of_axes(sections), device=freqs.device)
            axes = torch.arange(len(heads), device=freqs.device).repeat_interleave(heads)
            return _by_axis(axes)[..., None] * freqs
        case "videorope":
            return spatial_first(freqs, sections)
        case "hope":
            found = spatial_first(freqs, sections)
            return torch.cat((0 * found[:1], found[1:]))
    raise ValueError(
        f"`name` must be one of {', '.join(LAYOUTS)}, got {brief(name)}. Pass one of these names."
    )


def _by_axis(axes: Tensor) -> Tensor:
    """Return a one-hot matrix (axis, entry): column j has its 1 in row `axes[j]`."""
    return (axes == torch.arange(3, device=axes.device)[:, None]).double()
