"""Test the reading of vision towers against transformers' own modules, see towers.py."""

import pytest

pytest.importorskip("transformers")

import torch
from refusals import refused
from towers import added, recorded, tower

from posenc.models.config import specify
from posenc.models.config.families import patch_tables, vision
from posenc.models.config.spec import PatchTable

EVERY = pytest.mark.parametrize("name", vision.MODELS.split())
TABLES = pytest.mark.parametrize(
    "name",
    [name for name, tower in vision.TOWERS.items() if "table" in tower] + [*patch_tables.TOWERS],
)
UNUSED = ("hunyuan_vl_vision", "lw_detr_vit", "vitdet")  # the row of a class token
ROWS, COLUMNS = 6, 10  # patches; windows of 4 are cut off at the edge


def size(name):
    return (6, 6) if name == "llama4_vision_model" else (ROWS, COLUMNS)


def spec_of(model):
    return specify(model.config.to_dict())


@EVERY
def test_a_tower_rotates_each_patch_as_its_specification(name, monkeypatch):
    """Compare queries before and after the rotation in the first layer, in the model's order."""
    model = tower(name)
    calls = recorded(model, *size(name), monkeypatch)
    layer = next(layer for layer in spec_of(model).layers if layer.attends)
    points = layer.encoding.points(1, *size(name))
    encoding = layer.build()
    for before, after in calls.turned:
        at = next(axis for axis in range(3) if before.shape[axis] >= len(points))
        before, after = before.movedim(at, 1)[None], after.movedim(at, 1)[None]
        if name.startswith("mlcd"):
            # The class token is rotated by learned angles
            before, after = before[:, :, 1:], after[:, :, 1:]
        every = _with_class_token(points, before.shape[2], name)
        torch.testing.assert_close(encoding.on_queries(before, encoding.prepare(every)), after)
    assert len(calls.turned) >= sum(layer.attends for layer in spec_of(model).layers)


def _with_class_token(points, tokens, name):
    """Put the class token at the origin: last in Llama 4, first elsewhere."""
    origin = torch.zeros(tokens - len(points), points.shape[-1], dtype=points.dtype)
    parts = (points, origin) if name == "llama4_vision_model" else (origin, points)
    return torch.cat(parts)


@EVERY
def test_a_tower_attends_within_the_windows_and_by_the_scale_of_its_specification(
    name, monkeypatch
):
    """Compare the numbers of tokens in each call of attention, layer by layer."""
    model = tower(name)
    calls, spec = recorded(model, *size(name), monkeypatch), spec_of(model)
    expected = []
    for layer in spec.layers:
        if not layer.attends:
            continue
        points, tokens = layer.encoding.points(*size(name)), len(layer.encoding.points(*size(name)))
        if layer.window:
            parts = layer._part(points, layer.window)
            expected += [int(n) for n in parts.unique_consecutive(return_counts=True)[1]]
            mask = layer.mask(points, points)
            every = torch.arange(tokens)
            allowed = mask(0, 0, every[:, None], every[None])
            assert torch.equal(allowed, parts[:, None] == parts[None])
        else:
            extra = name in ("inkling2_vision", "llama4_vision_model", "mlcd", "mlcd_vision_model")
            expected.append(tokens + extra)
    assert [call[0] for call in calls.attended] == expected
    scales = {layer.scale or layer.encoding.dim**-0.5 for layer in spec.layers if layer.attends}
    assert {round(call[2], 6) for call in calls.attended} == {round(scale, 6) for scale in scales}
    assert all(layer.causal is False for layer in spec.layers if layer.attends)


@TABLES
@pytest.mark.parametrize("grows", [False, True])
def test_a_table_of_patches_is_fitted_to_an_image_as_by_the_tower(name, grows):
    """Compare the effect of the table on the first layer, for its own grid and a larger one."""
    model = tower(name)
    table = spec_of(model).embedding
    assert isinstance(table, PatchTable)
    rows, columns = (ROWS, COLUMNS) if grows else table.grid
    merge = max(table.order.merge, 2 * name.startswith("minicpm"))
    rows, columns = rows - rows % merge, columns - columns % merge
    if not table.resized and grows:
        with refused(ValueError, "`to`", "{} × {}".format(*table.grid)):
            table.rows_of(torch.zeros(table.rows, table.width), rows, columns)
        return
    stored, effect = added(model, table.rows * table.width, rows, columns)
    fitted = table.rows_of(stored, rows, columns)
    before, after = stored[: table.before], stored[len(stored) - table.after :]
    if name in UNUSED:
        before = before[:0]
    others = len(effect) - len(before) - len(fitted) - len(after)
    without = stored.new_zeros(others, table.width)
    # Registers follow the class token, and a class token without a row is first
    front = (before, without) if name == "tipsv2_vision_model" else (without, before)
    expected = torch.cat((*front, fitted, after))
    torch.testing.assert_close(effect, expected, atol=1e-5, rtol=1e-4)
