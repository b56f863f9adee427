"""Products of Householder mirrors, one for each token, without a matrix for each token.

H_t = 1 − β_t w_t w_tᵀ. Chunks of tokens as in the UT transform of Yang et al. 2025, "PaTH
Attention", arXiv:2505.16381, §3.
"""

import torch
from torch import Tensor

from posenc.core.running import chunks
from posenc.core.shapes import Heads, Keys, Scores
from posenc.core.tracing import visible
from posenc.rotation.matrices import over_lower


def mirrored(q: Heads, k: Keys, order: Tensor, w: Tensor, beta: Tensor, read: Tensor) -> Scores:
    """Compute kⱼᵀ (H_{j+1} ⋯ Hᵢ − 1) qᵢ, (batch, head, query, key).

    `order` (query) and `read` (key) are how many tokens were read when each of these was; w (batch,
    head, key, channel) and β (batch, head, key) are of the keys. Chunks of keys are walked
    backwards, from the last key that any of these queries has passed.
    """
    end = int((read <= order[-1:, None]).sum()) if visible(order) else k.shape[-2]
    so_far, parts = torch.zeros_like(q), [q.new_zeros(*q.shape[:-1], k.shape[-2] - end)]
    beta = beta.unsqueeze(-2)
    for chunk in reversed(chunks(end)):
        # `so_far` is (H ⋯ H − 1) q of the tokens after this chunk, up to each query's own.
        k_here, w_here = k[..., chunk, :], w[..., chunk, :].to(q.dtype)
        beta_here, passed = beta[..., chunk].to(q.dtype), read[chunk] <= order.unsqueeze(-1)
        # Σ_t taken_t w_t is what the mirrors of the chunk take away. One that comes before t'
        # meets what t' has left: taken_t = β_t (w_t · q − Σ_{t' > t} taken_t' w_t' · w_t).
        meets = ((q + so_far) @ w_here.mT) * passed * beta_here
        taken = over_lower(meets, (w_here @ w_here.mT).tril(-1) * beta_here)
        # A key meets only those of the mirrors that come after it.
        parts.append(so_far @ k_here.mT - taken @ (w_here @ k_here.mT).tril(-1))
        so_far = so_far - taken @ w_here
    return torch.cat(parts[::-1], -1)
