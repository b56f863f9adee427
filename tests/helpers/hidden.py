"""Prepare the argument `at` of hooks, also for encodings that need the layer's input."""

import torch


def prepared(encoding, pos, x=None):
    """Return the hooks' argument `at` for tokens at `pos`; the layer's input is x, or random."""
    at = encoding.prepare(pos)
    if "on_hidden" not in encoding.acts_on:
        return at
    if x is None:
        shape = pos.shape if encoding.axes == 1 else pos.shape[:-1]
        some = torch.Generator().manual_seed(shape[-1])
        x = torch.randn(*shape[:-1], shape[-1], encoding.width, generator=some).to(pos.device)
        x = x.unsqueeze(0) if x.ndim == 2 else x
    return encoding.on_hidden(x, at)


def prepared_both(encoding, x, y, q_pos, k_pos):
    """Return the hooks' argument `at` for queries from x, and for keys from y.

    Queries that are the last of the keys, as when decoding, go on from the keys before them.
    """
    k_at, first = prepared(encoding, k_pos, y), y.shape[1] - x.shape[1]
    if "on_hidden" in encoding.acts_on and first >= 0 and x.equal(y[:, first:]):
        return k_at.slice_tokens(slice(first, None)), k_at
    return prepared(encoding, q_pos, x), k_at
