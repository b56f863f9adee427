"""Test the sinusoids of detectors against the modules that their classes build."""

from functools import cache

import pytest

pytest.importorskip("transformers")

import torch
from refusals import refused
from transformers import CONFIG_MAPPING, ResNetConfig

from posenc.models.config import specify
from posenc.models.config.families import detection, feature_pyramids
from posenc.models.config.spec import PatchWaves
from posenc.models.files.errors import Unread
from tools import watched

ROWS, COLUMNS = 3, 5
STAGES = ["stage2", "stage3", "stage4"]


QUICK = ("detr", "rt_detr", "maskformer")
DETECTORS = pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in detection.MODELS.split()
    ],
)


@cache
def built(name):
    """Build the model of a type on the meta device; its backbone must not need timm."""
    kind = CONFIG_MAPPING[name]
    try:
        config = kind()
        return watched.built(config), config
    except ImportError:
        config = kind(backbone_config=ResNetConfig(out_features=STAGES))
        return watched.built(config), config


def sinusoids(module):
    """Call a module of a detector in one of the three ways in use."""
    seen = torch.ones(1, ROWS, COLUMNS)
    shape, features = (1, 1, ROWS, COLUMNS), torch.zeros(1, 1, ROWS, COLUMNS)
    if hasattr(module, "embed_dim"):
        return module(width=COLUMNS, height=ROWS, device=torch.device("cpu"), dtype=torch.float32)[
            0
        ]
    if "shape" in watched.inspect.signature(module.forward).parameters:
        found = module(shape, device="cpu", dtype=torch.float32)
    else:
        found = module(features, seen)
    return found[0].flatten(1).T


def check(spec, model):
    assert isinstance(spec.embedding, PatchWaves)
    encoding, points = spec.embedding.encoding(), spec.embedding.points(ROWS, COLUMNS)
    empty = torch.zeros(ROWS * COLUMNS, spec.embedding.width)
    rows = encoding.on_embeddings(empty, encoding.prepare(points))
    modules = [m for m in model.modules() if "SinePosition" in type(m).__name__]
    assert modules
    for module in modules:
        torch.testing.assert_close(rows, sinusoids(module), atol=2e-6, rtol=1e-5)


@DETECTORS
def test_a_detector_adds_the_sinusoids_of_its_specification(name):
    """Compare every module of sinusoids in the model, for an image of 3 × 5 features."""
    model, config = built(name)
    check(specify(config.to_dict()), model)


@DETECTORS
def test_the_layers_of_the_encoder_are_counted_as_they_are_built(name):
    model, config = built(name)
    spec = specify(config.to_dict())
    found = {n for n, _ in model.named_modules() if detection_layer(n)}
    assert len(spec.layers) == (0 if name == "maskformer" else len(found))
    alone = specify({"model_type": name})
    assert (alone.layers, alone.embedding) == (spec.layers, spec.embedding)
    sampled = any("Deformable" in type(m).__name__ for n, m in model.named_modules()
                  if n.startswith(("encoder.", "pixel_level_module.decoder.")))  # fmt: skip
    assert all(bool(layer.unsupported) == sampled for layer in spec.layers)


def detection_layer(name):
    """Test whether a module is a layer of the encoder of image features."""
    parts = name.split(".")
    before = ".".join(parts[:-2])
    ends = ("encoder", "pixel_level_module.decoder.encoder")
    own = before in ends or (len(parts) > 3 and parts[-4:-2][0] == "aifi")
    return own and parts[-2] == "layers"


@pytest.mark.parametrize("name", feature_pyramids.MODELS.split())
def test_a_feature_pyramid_passes_on_the_sinusoids_of_its_specification(name):
    kind = CONFIG_MAPPING[name]
    config = kind(fpn_hidden_size=32)
    modules = [vars(module) for module in watched.modules(kind)]
    (neck,) = (own for one in modules for n, own in one.items() if n.endswith("VisionNeck"))
    check(specify({"model_type": name, "fpn_hidden_size": 32}), neck(config))


def test_learned_rows_and_columns_of_a_detector_are_refused():
    with refused(Unread, "position_embedding_type", "detr"):
        specify({"model_type": "detr", "position_embedding_type": "learned"})
