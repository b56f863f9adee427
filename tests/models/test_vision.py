"""An encoding in the vision towers of transformers, against the towers' own encodings."""

import pytest
import torch
import transformers as hf
from refusals import refused
from torch import nn

from posenc import ALiBi, AxialRoPE, FoX, Learned, NoPE, RoPE, SinusoidalGrid, Swin
from posenc.core.positions import centred, grid
from posenc.encodings.rotary.dinov3 import dinov3
from posenc.models.vision import applied, discover

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
WIDER = SIZES | dict(intermediate_size=32)
IMAGE = dict(image_size=(24, 32), patch_size=8)
SQUARE = dict(image_size=32, patch_size=8)
TABLES = {
    "vit": lambda: hf.ViTModel(hf.ViTConfig(**WIDER, **IMAGE)),
    "deit": lambda: hf.DeiTModel(hf.DeiTConfig(**WIDER, **IMAGE)),
    "dinov2": lambda: hf.Dinov2Model(hf.Dinov2Config(**SIZES, **SQUARE, mlp_ratio=1)),
    "dinov2_with_registers": lambda: hf.Dinov2WithRegistersModel(
        hf.Dinov2WithRegistersConfig(**SIZES, **SQUARE, mlp_ratio=1)
    ),
    "siglip_vision_model": lambda: hf.SiglipVisionModel(hf.SiglipVisionConfig(**WIDER, **SQUARE)),
    "clip_vision_model": lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**WIDER, **SQUARE)),
    "chinese_clip_vision_model": lambda: hf.ChineseCLIPVisionModel(
        hf.ChineseCLIPVisionConfig(**WIDER, **SQUARE)
    ),
    "ijepa": lambda: hf.IJepaModel(hf.IJepaConfig(**WIDER, **IMAGE)),
    "vit_msn": lambda: hf.ViTMSNModel(hf.ViTMSNConfig(**WIDER, **IMAGE)),
    "internvl_vision": lambda: hf.InternVLVisionModel(
        hf.InternVLVisionConfig(**WIDER, image_size=(32, 32), patch_size=(8, 8))
    ),
    "aimv2_vision_model": lambda: hf.Aimv2VisionModel(hf.Aimv2VisionConfig(**WIDER, **SQUARE)),
}
ROTARY = {
    "dinov3_vit": lambda: hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**WIDER, **SQUARE)),
    "pixtral": lambda: hf.PixtralVisionModel(hf.PixtralVisionConfig(**WIDER, **SQUARE)),
}
MADE = TABLES | ROTARY


def lively(name):
    """A tower whose attention and tables matter, and an image of its size."""
    tower = MADE[name]().eval()
    for x in tower.parameters():
        nn.init.normal_(x, std=0.3)
    size = tower.config.image_size
    height, width = (size, size) if isinstance(size, int) else size
    return tower, torch.randn(2, 3, height, width)


def seen(tower, image):
    with torch.no_grad():
        return tower(image)[0]


@pytest.mark.parametrize("name", TABLES)
def test_the_table_of_a_tower_gives_its_own_output(name):
    """The rows are applied as `Learned`."""
    tower, image = lively(name)
    own, parts = seen(tower, image), discover(tower)
    (table,) = parts.tables
    rows = table.detach().flatten(0, -2).clone()
    learned = Learned(own.shape[1], 32)
    learned.table.data = torch.cat((rows[:1].expand(own.shape[1] - len(rows), -1), rows))
    with applied(tower, learned):
        torch.testing.assert_close(seen(tower, image), own)
    with applied(tower, NoPE()):
        assert not seen(tower, image).allclose(own, atol=0.1)


def test_the_rotation_of_dinov3_gives_its_own_output():
    """Class token and registers are not rotated: they are at the origin."""
    tower, image = lively("dinov3_vit")
    own, parts = seen(tower, image), discover(tower)
    points = torch.cat((torch.zeros(parts.prefix, 2).double(), centred(4, 4)))
    with applied(tower, RoPE(dinov3(16), layout="half"), points):
        torch.testing.assert_close(seen(tower, image), own, rtol=1e-4, atol=1e-4)
    with applied(tower, NoPE()):
        assert not seen(tower, image).allclose(own, atol=0.1)


def test_the_rotation_of_pixtral_gives_its_own_output():
    """Rows have the even frequencies of a head, columns the odd ones."""
    tower, image = lively("pixtral")
    image = image[:1]
    own, freqs = seen(tower, image), 10_000 ** -(torch.arange(8).double() / 8)
    theta = torch.zeros(2, 8).double()
    theta[0, :4], theta[1, 4:] = freqs[0::2], freqs[1::2]
    with applied(tower, RoPE(theta, layout="half")):
        torch.testing.assert_close(seen(tower, image), own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MADE)
def test_another_encoding_is_applied_and_the_tower_restored(name):
    """Without positions, permuted patches give the permuted output; with a bias they do not."""
    tower, image = lively(name)
    image = image[:1]
    own, parts = seen(tower, image), discover(tower)
    outputs, swin = [], Swin(2, 4, class_token=True)
    nn.init.normal_(swin.table)
    for encoding in (NoPE(), AxialRoPE(16), swin, ALiBi(2)):
        with applied(tower, encoding):
            outputs.append(seen(tower, image))
    for n, out in enumerate(outputs):
        assert all(not out.allclose(other, atol=1e-2) for other in outputs[:n])
    assert seen(tower, image).equal(own)
    patches = own.shape[1] - parts.prefix
    assert patches == parts.sides[0] * parts.sides[1]


def test_sinusoids_are_written_into_the_table():
    tower, image = lively("vit")
    sinusoids, points = SinusoidalGrid(32), torch.cat((torch.tensor([[-1, -1]]), grid(3, 4)))
    with applied(tower, sinusoids):
        made = seen(tower, image)
    with torch.no_grad():
        tower.embeddings.position_embeddings.copy_(sinusoids(torch.zeros(1, 13, 32), points))
    torch.testing.assert_close(made, seen(tower, image))


def test_a_sum_acts_in_the_table_and_in_attention():
    """The sum differs from each of its parts, whose order does not matter."""
    tower, image = lively("vit")
    sinusoids, bias = SinusoidalGrid(32), Swin(2, 4)
    nn.init.normal_(bias.table)
    outputs = []
    for encoding in (sinusoids + bias, sinusoids, bias):
        with applied(tower, encoding):
            outputs.append(seen(tower, image))
    assert not outputs[0].allclose(outputs[1], atol=0.1)
    assert not outputs[0].allclose(outputs[2], atol=0.1)
    with applied(tower, bias + sinusoids):
        torch.testing.assert_close(seen(tower, image), outputs[0])


def test_two_encodings_are_not_applied_at_once():
    tower, image = lively("vit")
    own = seen(tower, image)
    with applied(tower, NoPE()):
        with refused(ValueError, "`tower`"), applied(tower, ALiBi(2)):
            pass
    assert seen(tower, image).equal(own)


def test_a_learned_bias_gets_gradients_in_a_tower():
    tower, image = lively("vit")
    bias = Swin(2, 4, class_token=True)
    with applied(tower, bias):
        tower(image)[0].square().sum().backward()
    assert bias.table.grad.any()


def test_an_error_within_the_block_restores_the_tower():
    tower, image = lively("clip_vision_model")
    own = seen(tower, image)
    with pytest.raises(RuntimeError, match="stop"), applied(tower, AxialRoPE(16)):
        raise RuntimeError("stop")
    assert seen(tower, image).equal(own)


def with_bias():
    tower = hf.BeitModel(hf.BeitConfig(**WIDER, **SQUARE, use_relative_position_bias=True))
    for x in tower.parameters():
        nn.init.normal_(x, std=0.3)
    return tower


@pytest.mark.parametrize(
    "make",
    [
        with_bias,
        lambda: hf.BlipVisionModel(hf.BlipVisionConfig(**WIDER, **SQUARE)),
        lambda: hf.SwinModel(hf.SwinConfig(image_size=32, patch_size=2, embed_dim=12)),
        lambda: hf.ResNetModel(hf.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])),
        lambda: hf.BertModel(hf.BertConfig(**WIDER, vocab_size=20)),
        lambda: nn.Linear(4, 4),
    ],
    ids=["BEiT", "BLIP", "Swin", "ResNet", "BERT", "no model"],
)
def test_a_tower_that_it_does_not_reproduce_is_rejected(make):
    tower = make()
    with refused(TypeError, type(tower).__name__), applied(tower, NoPE()):
        pass


def test_a_rotary_tower_has_no_table_for_sinusoids():
    with refused(ValueError, "`encoding`", "SinusoidalGrid"):
        with applied(MADE["pixtral"](), SinusoidalGrid(32)):
            pass


def test_an_encoding_that_reads_the_input_of_layers_is_rejected():
    with refused(ValueError, "`encoding`", "FoX"), applied(MADE["vit"](), FoX(32, 2)):
        pass


def test_a_tower_with_positions_elsewhere_is_rejected():
    """The embeddings of this tower gain rows that are neither a table nor a rotation."""
    tower, _ = lively("vit")
    rows = torch.randn(13, 32)
    tower.embeddings.register_forward_hook(lambda module, args, out: out + rows)
    with refused(TypeError, "ViTModel", "positions"), applied(tower, NoPE()):
        pass


def test_a_tower_with_another_attention_is_rejected():
    """The output of this attention is twice that of softmax attention."""

    def doubled(module, query, key, value, attention_mask, scaling=None, **options):
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling)
        return 2 * out.transpose(1, 2), None

    hf.AttentionInterface.register("doubled", doubled)
    tower, _ = lively("vit")
    tower.set_attn_implementation("doubled")
    with refused(TypeError, "ViTModel", "attention"), applied(tower, NoPE()):
        pass
