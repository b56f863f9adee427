"""Resized tables against transformers, torch and numbers by hand."""

import pytest
import torch
from refusals import refused
from torch import nn

from posenc import Learned


def test_a_grid_of_patches_is_resized_as_transformers_does_for_vit():
    """From 4 × 4 to 6 × 3 patches, the row of the class kept; against ViT, DeiT and SigLIP."""
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8)
    sizes |= dict(image_size=32, patch_size=8)
    text = torch.randn(1, 18, 8)
    for name, kept in (("ViT", 1), ("DeiT", 2), ("SiglipVision", 0)):
        config = getattr(transformers, f"{name}Config")(**sizes)
        model = getattr(transformers, f"{name}Model")(config)
        embeddings = getattr(model, "vision_model", model).embeddings
        stored = embeddings.position_embeddings if kept else embeddings.position_embedding.weight
        stored.data.normal_()
        encoding = Learned(16 + kept, 8)
        encoding.table.data = stored.detach().reshape(-1, 8)
        x = torch.cat((torch.zeros(1, kept, 8), text), 1)
        expected = embeddings.interpolate_pos_encoding(x, 48, 24)[0]
        torch.testing.assert_close(encoding.resized((6, 3), kept=kept).table, expected)


def test_a_grid_is_smoothed_first_as_timm_does_where_that_is_asked_for():
    """timm 1: bicubic and antialiased, of float32, the first rows as they are."""
    encoding = Learned(17, 8)
    rows = encoding.table.detach()[1:].view(1, 4, 4, 8).permute(0, 3, 1, 2)
    small = nn.functional.interpolate(rows, (2, 2), mode="bicubic", antialias=True)
    made = encoding.resized((2, 2), kept=1, antialias=True)
    torch.testing.assert_close(made.table[1:], small.permute(0, 2, 3, 1).reshape(4, 8))
    assert torch.equal(made.table[0], encoding.table[0])
    assert not torch.equal(made.table, encoding.resized((2, 2), kept=1).table)


def test_rows_of_a_text_are_interpolated_linearly_and_stay_parameters():
    encoding = Learned(4, 2, beyond="clamp")
    encoding.table.data = torch.tensor([[9.0, 9], [0, 0], [1, 2], [2, 4]]).half()
    made = encoding.resized(7, kept=1)
    expected = [[9.0, 9], [0, 0], [0.25, 0.5], [0.75, 1.5], [1.25, 2.5], [1.75, 3.5], [2, 4]]
    assert made.table.tolist() == expected
    assert made.table.requires_grad
    assert (made.table.dtype, made.beyond, made.length) == (torch.float16, "clamp", 7)


def test_a_grid_that_the_table_does_not_hold_is_refused():
    with refused(ValueError, "`grid`", 16, "(3, 5)"):
        Learned(17, 8).resized((6, 6), grid=(3, 5), kept=1)
    with refused(ValueError, 17, "(4, 4)"):
        Learned(17, 8).resized((6, 6))
