"""Products of Householder mirrors, one for each token, without a matrix for each token.

H_t = 1 − β_t w_t w_tᵀ. Chunks of tokens as in the UT transform of Yang et al. 2025, "PaTH
Attention", arXiv:2505.16381, §3.
"""

import torch
from torch import Tensor

from posenc.biases.carried import Chunks, in_chunks
from posenc.compat.tracing import has_values
from posenc.core.running_sums import split_chunks
from posenc.core.shapes import Heads, Keys, Scores
from posenc.rotation.matrices import over_lower


def mirrored(
    q: Heads, k: Keys, order: Tensor, w: Tensor, beta: Tensor, read: Tensor
) -> tuple[Scores, Heads]:
    """Compute kⱼᵀ H_{j+1} ⋯ Hᵢ qᵢ, (batch, head, query, key), and H₁ ⋯ Hᵢ qᵢ.

    `order` (query) and `read` (key) are how many tokens were read when each of these was; w (batch,
    head, key, channel) and β (batch, head, key) are of the keys. Chunks of keys are walked
    backwards, from the last key that any of these queries has passed.
    """
    end = int((read <= order[-1:, None]).sum()) if has_values(order) else k.shape[-2]
    parts = [q @ k[..., end:, :].mT]
    for chunk in reversed(split_chunks(end)):
        # Here `q` is what the mirrors after this chunk, up to each query's own, have left of it.
        k_here, w_here, beta_here = k[..., chunk, :], w[..., chunk, :], beta[..., None, chunk]
        # Σ_t taken_t w_t is what the mirrors of the chunk take away. One that comes before t'
        # meets what t' has left: taken_t = β_t (w_t · q − Σ_{t' > t} taken_t' w_t' · w_t).
        meets = (q @ w_here.mT) * (read[chunk] <= order.unsqueeze(-1)) * beta_here
        taken = over_lower(meets, (w_here @ w_here.mT).tril(-1) * beta_here)
        # A key meets only those of the mirrors that come after it.
        parts.append(q @ k_here.mT - taken @ (w_here @ k_here.mT).tril(-1))
        q = q - taken @ w_here
    return torch.cat(parts[::-1], -1), q


def mirrored_chunks(q: Heads, k: Keys, w: Tensor, beta: Tensor) -> Chunks:
    """Compute the same of queries and keys that are the same tokens, all chunks at once."""
    q, k, w, beta = (in_chunks(x) for x in (q, k, w, beta.unsqueeze(-1)))
    beta = beta.mT
    # The product of the mirrors of some tokens is 1 − Σ_{s ≤ t} w_s T_ts w_tᵀ, where the matrix
    # T = diag(β) (1 + A diag(β))⁻¹, A_ts = w_t · w_s for s < t, is the same for all intervals.
    ut = over_lower(torch.diag_embed(beta.squeeze(-2)), (w @ w.mT).tril(-1) * beta)
    taken = (q @ w.mT).tril() @ ut
    met = (w @ k.mT).tril(-1)
    step = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device) - w.mT @ ut.mT @ w
    return Chunks(q @ k.mT - taken @ met, q - taken @ w, k - (ut @ met).mT @ w, step)
