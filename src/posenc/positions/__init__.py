"""Functions that return positions of texts, grids, and texts with pictures, video and sound."""

from posenc.core.positions import centred as centred
from posenc.core.positions import documents as documents
from posenc.core.positions import folded as folded
from posenc.core.positions import grid as grid
from posenc.core.positions import moved as moved
from posenc.core.positions import packed as packed
from posenc.core.positions import padded as padded
from posenc.core.positions import randomised as randomised
from posenc.core.positions import sequence as sequence
from posenc.core.positions import skipped as skipped
from posenc.positions.diffusion import DiffusionRule as DiffusionRule
from posenc.positions.diffusion import text_and_grid as text_and_grid
from posenc.positions.multimodal import multimodal as multimodal
from posenc.positions.patches import patches as patches
from posenc.positions.rules import MultimodalRule as MultimodalRule

__all__ = [
    "DiffusionRule",
    "MultimodalRule",
    "centred",
    "documents",
    "folded",
    "grid",
    "moved",
    "multimodal",
    "packed",
    "padded",
    "patches",
    "randomised",
    "sequence",
    "skipped",
    "text_and_grid",
]
