"""Inputs that do not fit, against the error messages."""

import pytest
import torch

from posenc import ALiBi, NoPE, RoPE, attend, masks

Q = torch.randn(2, 4, 6, 8)
WRONG = {
    "a list": (dict(q=[1]), TypeError, r"`q` must be a tensor \(batch, head, token, channel\)"),
    "three axes": (dict(v=Q[0]), ValueError, r"must be \(batch, head, token, channel\)"),
    "other tokens": (dict(v=Q[:, :, 1:]), ValueError, "k and v in batch, heads and tokens"),
    "other heads": (dict(k=Q[:, :3], v=Q[:, :3]), ValueError, "heads of q must be a multiple"),
    "other dtypes": (dict(k=Q.double()), ValueError, "must have one dtype"),
    "integers": (dict(q=Q.long(), k=Q.long(), v=Q.long()), TypeError, "real floating-point"),
    "no encoding": (dict(encoding="rope"), TypeError, "`posenc.create`"),
    "another size": (dict(encoding=RoPE(16)), ValueError, "(?s)8 .*`q`.* 16 "),
    "a tensor as mask": (dict(mask=torch.ones(6, 6)), TypeError, "`lambda b, h, i, j: tens"),
    "a class as mask": (dict(mask=int), TypeError, "`mask`.* the class int"),
    "a mask not called": (dict(mask=masks.causal), TypeError, "`mask`.* `masks.causal`"),
    "a mask of others": (
        dict(mask=masks.padding([5], "left", 7)),
        ValueError,
        "mask .*positions for 6 .* 7",
    ),
    "no such path": (dict(implementation="fast"), ValueError, "must be one of 'auto', 'reference'"),
    "no name": (dict(implementation=3), TypeError, "`implementation` must be a name"),
    "a cap of 0": (dict(softcap=0.0), ValueError, "`softcap`"),
    "sinks of others": (dict(sinks=torch.zeros(3)), ValueError, "`sinks`.* 4"),
    "whole sinks": (dict(sinks=torch.zeros(4).long()), ValueError, "`sinks` must be floats on"),
    "keys elsewhere": (
        dict(k=Q[:, :, 1:], v=Q[:, :, 1:]),
        ValueError,
        "`at` and `k_at` must be given",
    ),
}


@pytest.mark.parametrize(("given", "error", "words"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_said(unchecked, given, error, words):
    inputs = dict(q=Q, k=Q, v=Q, encoding=NoPE()) | given
    with pytest.raises(error, match=words):
        attend(**inputs)


def test_positions_left_out_count_from_0():
    """Against positions that are written out."""
    torch.testing.assert_close(
        attend(Q, Q, Q, ALiBi(4)), attend(Q, Q, Q, ALiBi(4), torch.tensor([0, 1, 2, 3, 4, 5]))
    )
