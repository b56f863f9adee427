"""Learned against torch's own embedding table."""

import pytest
import torch
from torch import nn

from posenc import Learned


def test_adds_the_row_that_an_embedding_table_gives():
    encoding, table = Learned(7, 6), nn.Embedding(7, 6)
    table.weight.data.copy_(encoding.table.data)
    x, pos = torch.randn(2, 4, 6), torch.tensor([[0, 1, 6, 3], [2, 2, 0, 5]])
    assert encoding(x, pos).equal(x + table(pos))


def test_starts_small_as_in_gpt_2():
    table = Learned(1024, 768).table
    assert table.shape == (1024, 768)
    assert table.std().item() == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize("pos", [[0, 7], [-1, 0]])
def test_past_either_end_there_is_no_row(pos):
    with pytest.raises(IndexError, match=r"rows 0 … 6, `pos` asks for") as error:
        Learned(7, 6)(torch.ones(1, 2, 6), torch.tensor(pos))
    for told in (f"{pos[0]} … {pos[1]}", "`length` larger", '`beyond="clamp"`', "without an end"):
        assert told in str(error.value)


def test_clamping_repeats_the_outermost_rows():
    encoding = Learned(7, 6, beyond="clamp")
    out = encoding(torch.zeros(1, 4, 6), torch.tensor([-5, 6, 7, 10**9]))[0]
    assert out.equal(encoding.table[[0, 6, 6, 6]])


def test_only_the_rows_used_are_trained():
    encoding = Learned(7, 6)
    encoding(torch.zeros(1, 3, 6), torch.tensor([1, 4, 4])).sum().backward()
    assert encoding.table.grad[:, 0].tolist() == [0, 1, 0, 0, 2, 0, 0]


def test_says_what_cannot_be(unchecked):
    with pytest.raises(TypeError, match=r"by whole numbers; `pos` is torch.float32"):
        Learned(7, 6).prepare(torch.tensor([1.0]))
    with pytest.raises(ValueError, match="`beyond` must be 'refuse' or 'clamp', got 'wrap'"):
        Learned(7, 6, beyond="wrap")


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
    with pytest.raises(ValueError, match=r"`grid` must have as many places .* 16, got \(3, 5\)"):
        Learned(17, 8).resized((6, 6), grid=(3, 5), kept=1)
    with pytest.raises(ValueError, match=r"after the 0 that are kept, 17, got \(4, 4\)"):
        Learned(17, 8).resized((6, 6))
