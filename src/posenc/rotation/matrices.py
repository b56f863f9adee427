"""Build rotation matrices from skew-symmetric matrices, by exp(A) or the Cayley transform.

    Aᵀ = −A  ⇒  exp(A) exp(A)ᵀ = 1  and  P Pᵀ = 1 for P = (1 − A)(1 + A)⁻¹

Everything is computed in float64, like angles. ONNX has no exponential or inverse of matrices, so
exported graphs contain series of products instead, with an error of at most 10⁻⁸.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.compat.tracing import exporting_onnx, is_eager_cpu, no_autocast, transformed
from posenc.core.frequencies import refuse_broadcast
from posenc.core.shapes import Heads, Keys, PerHead
from posenc.rotation.table import copied

HALVINGS = 20  # halvings of the exponent, enough for a norm of A up to a million
TERMS = 9  # terms of the series of exp
NEWTON = 48  # Newton steps of an inverse, enough for a condition number of a million


def skew(x: Tensor) -> Tensor:
    """Return the skew-symmetric matrix with the entries of `x` above its diagonal, in float64.

    >>> skew(torch.tensor([[7.0, 2.0], [7.0, 7.0]])).tolist()
    [[0.0, 2.0], [-2.0, 0.0]]
    """
    upper = x.double().triu(1)
    return upper - upper.mT


def exponential(a: Tensor) -> Tensor:
    """Return exp(A) of matrices (…, row, column), a rotation if A is skew-symmetric."""
    if not exporting_onnx():
        return torch.linalg.matrix_exp(a)
    small, identity = a * 0.5**HALVINGS, torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    power = identity
    for n in range(TERMS, 0, -1):  # 1 + small/1 (1 + small/2 (1 + small/3 (…)))
        power = identity + small @ power / n
    for _ in range(HALVINGS):  # exp(A) = exp(A/2)²
        power = power @ power
    return power


def rotations(
    points: Float[Tensor, "*batch token axis"], a: Float[Tensor, "axis block row column"]
) -> Float[Tensor, "*batch token block row column"]:
    """Return exp(Σ_a p_a A_a), the rotation by positions p_a and skew-symmetric matrices A_a.

    If all points are on a line through 0, p = s·u, the results are exp(s A) of a single A.
    """
    seen = is_eager_cpu(points, a) and not transformed() and points.numel() > 0
    # eigh fails for NaN, and the search for a line gives no gradient of points
    if seen and not points.requires_grad and a.isfinite().all():
        line = _line(points)
        if line is not None:
            s, u = line
            eigenvalues, v = _Eigenvectors.apply(torch.tensordot(u, a, 1))
            if _apart(eigenvalues):
                return _powers(s, eigenvalues, v)
        if a.requires_grad and torch.is_grad_enabled():
            return _Exponentials.apply(torch.tensordot(points, a, 1))
    each = points[..., None, None, None] * a  # (…, token, axis, block, row, column)
    return exponential(each.sum(-4))


def _line(points: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return s and u with points = s · u; None if the points are not on a line through 0."""
    flat = points.flatten(0, -2)
    row, axis = divmod(int(flat.abs().argmax()), flat.shape[-1])
    s, farthest = points[..., axis], flat[row]
    if not (points * farthest[axis]).equal(s.unsqueeze(-1) * farthest):
        return None
    return s, farthest / (farthest[axis] or 1.0)


def _powers(s: Tensor, eigenvalues: Tensor, v: Tensor) -> Tensor:
    """Return exp(s A) for each number in s, from the eigenvalues λ and eigenvectors v of iA.

    exp(s A) = Σ_m exp(−isλ_m) v_m v_m*, computed by one product.

    The eigenvalues of iA are pairs ±λ with conjugate v, so only half of them are used.
    """
    size = v.shape[-1]
    eigenvalues, v = eigenvalues[..., size // 2 :], v[..., size // 2 :].mT
    twice = torch.full_like(eigenvalues, 2.0)
    # A matrix of odd size has one eigenvalue 0 with a real vector, which counts once
    twice[..., : size % 2] = 1.0
    planes = (twice.unsqueeze(-1) * v).unsqueeze(-1) * v.conj().unsqueeze(-2)
    angle = s[..., None, None] * eigenvalues  # (…, token, block, m)
    turns = torch.cat((angle.cos(), angle.sin()), -1)
    planes = torch.cat((planes.real, planes.imag), -3)  # (block, m, row, column)
    return torch.einsum("...bm, bmij -> ...bij", turns, planes)


def _apart(eigenvalues: Tensor) -> bool:
    """Test whether eigenvalues differ enough for a division by their differences."""
    gaps = eigenvalues.diff(dim=-1)  # eigenvalues ascend
    return bool((gaps > 1e-7 * eigenvalues[..., -1:]).all())


class _Eigenvectors(torch.autograd.Function):
    """Eigendecomposition of iA for a skew-symmetric A, with a gradient that tolerates overflow.

    iA = V λ V*. Results must not depend on the phases of V.

    The gradient of A is Im V (λ′ + V* V′ / (λ_n − λ_m)) V*, for gradients λ′ and V′. Torch's own
    backward is equal, but raises an error for gradients that overflowed, as in 16-bit training.
    """

    @staticmethod
    def forward(ctx, a):  # type: ignore[override]
        eigenvalues, v = torch.linalg.eigh(1j * a)
        ctx.save_for_backward(eigenvalues, v)
        return eigenvalues, v

    @staticmethod
    def backward(ctx, of_eigenvalues, of_v):  # type: ignore[override]
        eigenvalues, v = ctx.saved_tensors
        gaps = eigenvalues.unsqueeze(-2) - eigenvalues.unsqueeze(-1)  # (block, m, n)
        inner = v.mH @ of_v / gaps.where(gaps != 0, torch.inf)
        return (v @ (inner + of_eigenvalues.diag_embed()) @ v.mH).imag


class _Exponentials(torch.autograd.Function):
    """exp(A) of skew-symmetric matrices A by eigenvectors, with an exact gradient.

    exp(A) = V exp(−iλ) V*, where iA = V λ V*.

    The gradient of A is V (Φ ∘ V* G V) V*, where G is the gradient of exp(A) and Φ_mn =
    exp(i (λ_m + λ_n)/2) sin(x)/x, x = (λ_m − λ_n)/2 (Daleckii and Krein 1965). It does not divide
    by gaps. Torch's own backward exponentiates matrices of twice the size.
    """

    @staticmethod
    def forward(ctx, a):  # type: ignore[override]
        eigenvalues, v = torch.linalg.eigh(1j * a)
        ctx.save_for_backward(a, eigenvalues, v)
        x = v * torch.exp(-1j * eigenvalues).unsqueeze(-2)
        # Re(X V*) = Re X (Re V)ᵀ + Im X (Im V)ᵀ, one real product of matrices twice as wide
        x, v = (torch.view_as_real(z).flatten(-2) for z in (x, v))
        return x @ v.mT

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        a, eigenvalues, v = ctx.saved_tensors
        # Grad mode means that a second derivative is needed
        if torch.is_grad_enabled():
            return torch.autograd.grad(exponential(a), a, grad, create_graph=True)[0]
        half = eigenvalues.unsqueeze(-2) / 2  # (…, 1, column)
        turn, x = torch.exp(1j * half), half.mT - half
        sinc = (x.sin() / x).where(x != 0, 1.0)
        inner = v.mH @ (grad.to(v.dtype) @ v) * (turn.mT * turn * sinc)
        return (v @ inner @ v.mH).real


def cayley(a: Tensor) -> Tensor:
    """Return (1 − A)(1 + A)⁻¹, a rotation without the eigenvalue −1.

    >>> cayley(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    if exporting_onnx():
        return (identity - a) @ _inverse(identity + a)
    return torch.linalg.solve(identity + a, identity - a)  # the two factors commute


def over_lower(x: Tensor, a: Tensor) -> Tensor:
    """Return x (1 + A)⁻¹ for a strictly lower triangular A."""
    if exporting_onnx():
        identity = torch.eye(a.shape[-1], dtype=torch.float64, device=a.device)
        return (x.double() @ _inverse(identity + a.double())).to(x.dtype)
    return torch.linalg.solve_triangular(a, x, upper=False, left=False, unitriangular=True)


def _inverse(a: Tensor) -> Tensor:
    """Return A⁻¹ by Newton steps X ← X (2 − A X), which need only products (Schulz 1933)."""
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    # |A|₁ and |A|∞ are the largest sums of columns and of rows, (…, 1, 1). For the initial
    # X = Aᵀ / (|A|₁ |A|∞), |1 − A X| is below 1, and each step squares it.
    columns, rows = (
        a.abs().sum(axis, keepdim=True).amax((-2, -1), keepdim=True) for axis in (-2, -1)
    )
    inverse = a.mT / (columns * rows)
    for _ in range(NEWTON):
        inverse = inverse @ (2 * identity - a @ inverse)
    return inverse


def turned(x: Heads, by: Tensor) -> Heads:
    """Multiply each block of channels of x by the block's rotation matrix at the token's position.

    The matrices are (*batch, 1, token, block, row, column).

    The product is float32 or wider even under autocast, and rounded once to the dtype of `x`.
    """
    refuse_broadcast(x, by[..., 0, 0])
    with no_autocast(x):
        dtype = torch.promote_types(x.dtype, by.dtype)
        blocks = x.to(dtype).unflatten(-1, (by.shape[-3], by.shape[-1]))
        by = by.to(dtype) if by.ndim == 6 else by.to(dtype).unsqueeze(0)
        # ONNX's Einsum does not broadcast axes
        if exporting_onnx():
            out = (by @ blocks.unsqueeze(-1)).squeeze(-1)
        elif by.shape[:2] == (1, 1):  # (token, block, batch · head, channel), and back
            rows = blocks.permute(2, 3, 0, 1, 4).flatten(2, 3) @ by.flatten(0, 2).mT
            rows = rows.unflatten(2, x.shape[:2]).permute(2, 0, 3, 1, 4)
            # Attention kernels are faster with the memory layout of projected heads
            out = rows.contiguous().transpose(1, 2)
        else:
            # einsum broadcasts matrices over heads without copies
            out = torch.einsum("bhtnij, bhtnj -> bhtni", by, blocks)
    return out.flatten(-2).to(x.dtype)


def turned_keys(k: Keys, by: Tensor) -> PerHead:
    """Rotate each key by the matrix at its position.

    If positions differ between query heads, each query head gets a copy of its key.
    """
    return turned(copied(k, by[..., 0, 0]), by)


def in_basis(x: Heads, basis: Tensor) -> Heads:
    """Return the coordinates of each token in the basis P, Pᵀ x, in float32 or wider."""
    with no_autocast(x):
        dtype = torch.promote_types(x.dtype, basis.dtype)
        return x.to(dtype) @ basis.to(dtype)
