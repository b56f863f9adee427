"""A bias of content by offset, read skewed, against the definition, which gathers every pair."""

from copy import deepcopy

import pytest
import torch
from refusals import refused
from spaced_attention import BY_CONTENT, MASKS, PLACES, both, by_path, masked, tensors
from torch.utils._pytree import tree_leaves

from posenc import attend, explain
from posenc.biases import vectors
from posenc.compat.private_torch import DispatchMode
from posenc.core.masks import causal


@both
@masked
@pytest.mark.parametrize("groups", [4, 1])
@torch.no_grad()
def test_a_view_of_content_by_offset_is_the_reference(mask, place, groups):
    encoding, at = BY_CONTENT["transformer-xl"], PLACES[place]
    q, k, v = tensors(*at, groups, values=11)
    run = lambda path: by_path(path, q, k, v, encoding, *at, MASKS[mask](*at), scale=0.9)  # noqa: E731
    torch.testing.assert_close(run("toeplitz"), run("reference"), rtol=1e-5, atol=2e-5)


@both
@masked
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_its_gradients_are_those_of_the_reference(mask, place, groups):
    """Compare the gradients of queries, keys and values, both biases and the projection."""
    encoding, at = deepcopy(BY_CONTENT["transformer-xl"]).double(), PLACES[place]
    q, k, v = (x.double().requires_grad_() for x in tensors(*at, groups, values=11))

    def run(path):
        out = by_path(path, q, k, v, encoding, *at, MASKS[mask](*at), scale=0.9)
        return out, *torch.autograd.grad(out.sin().sum(), (q, k, v, *encoding.parameters()))

    torch.testing.assert_close(run("toeplitz"), run("reference"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("learned", [["q"], ["u"], ["project"], ["k", "v"]])
def test_it_trains_whatever_learns(learned):
    encoding = deepcopy(BY_CONTENT["transformer-xl"]).double().requires_grad_(False)
    pos = PLACES["text"][0]
    inputs = dict(zip("qkv", (x.double() for x in tensors(pos, pos)), strict=True))
    leaves = [{**dict(encoding.named_parameters()), **inputs}[name] for name in learned]
    for leaf in leaves:
        leaf.requires_grad_()
    assert explain(*inputs.values(), encoding, mask=causal()).path == "toeplitz"

    def run(path):
        out = by_path(path, *inputs.values(), encoding, pos, pos, causal())
        return torch.autograd.grad(out.sin().sum(), leaves)

    torch.testing.assert_close(run("toeplitz"), run("reference"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("queries", [300, 1])
def test_within_autocast_it_computes_in_full(queries, trains):
    """Compare with the same call outside of autocast. Products of one query are in bfloat16."""
    encoding, pos = BY_CONTENT["transformer-xl"], PLACES["text"][0]
    at = pos[-queries:]
    q, k, v = (x.requires_grad_(trains) for x in tensors(at, pos))
    outcomes = []
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = by_path("auto", q, k, v, encoding, at, pos, causal(at, pos))
            asked = (q, k, v, *encoding.parameters()) if trains else ()
            grads = torch.autograd.grad(out.float().sin().sum(), asked) if trains else ()
        outcomes.append([out.float(), *(grad.float() for grad in grads)])
    errors = [(a - b).abs().max() / b.abs().max() for a, b in zip(*outcomes, strict=True)]
    *exact, projection = errors if trains else (*errors, 0.0)
    assert max(exact) < (1e-4 if queries > 1 else 5e-2)
    assert projection < 5e-2


def test_a_second_derivative_is_refused_where_one_is_taken():
    encoding, pos = BY_CONTENT["transformer-xl"], PLACES["text"][0]
    q, k, v = (x.requires_grad_() for x in tensors(pos, pos))
    out = by_path("auto", q, k, v, encoding, pos, pos, None)
    with refused(RuntimeError, '"reference"'):
        torch.autograd.grad(out.square().sum(), q, create_graph=True)


@pytest.mark.parametrize("trains", [True, False])
def test_it_holds_no_more_than_one_block_of_scores(trains):
    """Counted in the numbers of what each operation returns; all scores are 4 · 1,500²."""
    encoding, q = BY_CONTENT["transformer-xl"], torch.randn(1, 4, 1500, 8)
    q.requires_grad_(trains)

    class Largest(DispatchMode):
        most = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for x in tree_leaves(out):
                if isinstance(x, torch.Tensor):
                    self.most = max(self.most, x.untyped_storage().nbytes() // x.element_size())
            return out

    with Largest() as held:
        out = attend(q, q, q, encoding, mask=causal())
        if trains:
            out.sum().backward()
    assert held.most <= vectors.HEADS * vectors.ROWS * 1_700


def test_its_terms_add_up_to_the_bias():
    encoding, (pos, k_pos) = BY_CONTENT["transformer-xl"], PLACES["cached"]
    q, k, _ = tensors(pos, k_pos)
    bias = encoding.on_scores(q, k, encoding.prepare(pos), encoding.prepare(k_pos), 0.9)
    rows, keys = slice(2, 7), slice(0, 300)
    terms = bias.terms()
    assert list(terms) == ["u·k", "q·r", "v·r"]
    added = sum(term.block(rows, keys) for term in terms.values())
    torch.testing.assert_close(added, bias.block(rows, keys).expand_as(added))
