"""ReRoPE: RoPE with far offsets mapped to near ones, so that long texts need no untrained angles.

    score(i, j) = q · R(f(pᵢ, pⱼ)) k · scale        R(f): RoPE's rotation by f instead of pᵢ − pⱼ
    rerope        f = δ  if δ = pᵢ − pⱼ < w,  else w
    self_extend   f = δ  if δ < w,  else ⌊pᵢ/G⌋ − ⌊pⱼ/G⌋ + w − ⌊w/G⌋
    dual_chunk    f = a − pⱼ mod c,   c = chunk − local,   n = ⌊pᵢ/c⌋ − ⌊pⱼ/c⌋ chunks between
                  a = pᵢ mod c,  min(pᵢ mod c + c, chunk),  min(2c − 1, chunk)  for n = 0, 1, ≥ 2

No map needs training: choose the window w, or the chunk, within the trained length. Near keys keep
their exact offsets. Far keys share an offset: all of them (rerope), those in a group of G positions
(self_extend), or those at the same place in their chunks (dual_chunk). The order of far keys is
therefore known only roughly, or not at all.

Su 2023, bojone/rerope, rerope_patch.py at acfe788; Jin et al. 2024, "Self-Extend",
arXiv:2401.01325, datamllab/LongLM, self_extend_patch/Llama.py at cdbbb06, with w/G unrounded; An et
al. 2024, "Dual chunk attention", arXiv:2402.17463, HKUNLP/ChunkLlama, chunkllama_attn_replace.py at
2add4d7. Left out: the first two also multiply queries by max(1, ln(p + 1) / ln L).
"""

from torch import Tensor

from posenc.biases.regions import RegionBias
from posenc.core.biases import content, for_query_heads
from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, base_of, checked, theta
from posenc.core.shapes import Frequencies, Heads, KeyPositions, Keys, Positions
from posenc.encodings.rotary import remaps
from posenc.properties import learned
from posenc.properties.card import RELATIVE, Card, paper
from posenc.rotation.rotate import rotate
from posenc.rotation.table import turn


class Remapped(Encoding):
    """RoPE with far offsets mapped to near ones: `Remapped(64, self_extend(8, window=1024))`.

    - `freqs`: number of channels, or a vector of frequencies (pair,) in radians per token
    - `remap`: `rerope(window)`, `self_extend(group, window)` or `dual_chunk(chunk, local)`; None:
      `rerope(512)`
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + dim / 2
    - `base`: base of θ if `freqs` is a number of channels; None: 10,000

    >>> from posenc.encodings.rotary.remaps import dual_chunk
    >>> Remapped(64, dual_chunk(3072, 512))
    Remapped(64 channels, base=10000, dual_chunk(3072, 512), layout='interleaved')
    """

    causal = True

    def __init__(
        self,
        freqs: int | Frequencies,
        remap: remaps.Remap | None = None,
        layout: Layout = "interleaved",
        base: float | None = None,
    ):
        super().__init__()
        self.freqs = theta(freqs, base)
        self.remap = remaps.rerope(512) if remap is None else remaps.checked(remap)
        if self.freqs.ndim != 1:
            given = tuple(self.freqs.shape)
            raise ValueError(f"`freqs` must be a vector, got shape {given}.")
        self.dim = 2 * len(self.freqs)
        self.layout: Layout = checked(layout)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> RegionBias:
        q, k = content(q, k)
        k_at = for_query_heads(k_at, q.shape[1])
        region, places = remaps.regions(self.remap)
        # Chunks rotate keys equally in all regions, so each rotation of keys is computed once
        keys = {of_key: self._turned(k, of_key(k_at)) for of_key in {key for _, key in places}}
        turned = [(self._turned(q, of_query(q_at)), keys[of_key]) for of_query, of_key in places]
        return RegionBias(q, k, q_at, k_at, scale, region, turned)

    def _turned(self, x: Heads, pos: Tensor) -> Heads:
        return rotate(x, turn(pos, self.freqs), self.layout)

    def extra_repr(self) -> str:
        kind, *sizes = self.remap
        remap = f"{kind}({', '.join(map(str, sizes))})"
        return f"{self.dim} channels{base_of(self.freqs)}, {remap}, layout={self.layout!r}"


CARD = Card(
    name="ReRoPE",
    paper=paper("su2023rerope"),
    used_by="Qwen2.5-1M (dual chunk attention)",
    make=lambda dim, heads, base=10_000.0, **options: Remapped(dim, base=base, **options),
    holds=RELATIVE - {learned},
)
