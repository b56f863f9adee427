"""Products of the Householder matrices of many tokens, without storing any matrix.

H_t = 1 − β_t w_t w_tᵀ. Chunks of tokens are combined as in the UT transform of Yang et al. 2025,
"PaTH Attention", arXiv:2505.16381, §3.
"""

import torch
from torch import Tensor

from posenc.biases.transported_keys import Chunks, in_chunks
from posenc.compat.tracing import has_values
from posenc.core.running_sums import split_chunks
from posenc.core.shapes import Heads, Keys, Scores
from posenc.rotation.matrices import over_lower


def mirrored(
    q: Heads, k: Keys, order: Tensor, w: Tensor, beta: Tensor, read: Tensor
) -> tuple[Scores, Heads]:
    """Return the scores of PaTH, kⱼᵀ H_{j+1} ⋯ Hᵢ qᵢ, and the transformed queries H₁ ⋯ Hᵢ qᵢ.

    `order` (query) and `read` (key) are the indices of tokens in the text, from 1; w (batch, head,
    key, channel) and β (batch, head, key) belong to the keys. Chunks of keys are processed
    backwards, from the last key that is not after any of these queries.
    """
    end = int((read <= order[-1:, None]).sum()) if has_values(order) else k.shape[-2]
    parts = [q @ k[..., end:, :].mT]
    for chunk in reversed(split_chunks(end)):
        # `q` has already been multiplied by all matrices after this chunk, up to the query's own
        k_here, w_here, beta_here = k[..., chunk, :], w[..., chunk, :], beta[..., None, chunk]
        # The chunk subtracts Σ_t taken_t w_t from q. Later matrices are applied first, so
        # taken_t = β_t (w_t · q − Σ_{t' > t} taken_t' w_t' · w_t).
        meets = (q @ w_here.mT) * (read[chunk] <= order.unsqueeze(-1)) * beta_here
        taken = over_lower(meets, (w_here @ w_here.mT).tril(-1) * beta_here)
        # Only the matrices after a key transform it
        parts.append(q @ k_here.mT - taken @ (w_here @ k_here.mT).tril(-1))
        q = q - taken @ w_here
    return torch.cat(parts[::-1], -1), q


def mirrored_chunks(q: Heads, k: Keys, w: Tensor, beta: Tensor) -> Chunks:
    """Return the `Chunks` (queries, keys, matrices) for self-attention with PaTH's scores."""
    q, k, w, beta = (in_chunks(x) for x in (q, k, w, beta.unsqueeze(-1)))
    beta = beta.mT
    # The product of the matrices of some tokens is 1 − Σ_{s ≤ t} w_s T_ts w_tᵀ, where the matrix
    # T = diag(β) (1 + A diag(β))⁻¹, A_ts = w_t · w_s for s < t, is the same for all intervals.
    ut = over_lower(torch.diag_embed(beta.squeeze(-2)), (w @ w.mT).tril(-1) * beta)
    taken = (q @ w.mT).tril() @ ut
    met = (w @ k.mT).tril(-1)
    step = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device) - w.mT @ ut.mT @ w
    return Chunks(q @ k.mT - taken @ met, q - taken @ w, k - (ut @ met).mT @ w, step)
