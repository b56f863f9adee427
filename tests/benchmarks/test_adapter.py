"""Models with an encoding plugged in, few samples: beside and compared with the model itself."""

import pytest

from benchmarks import adapter
from posenc import attend

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_others")]


def test_a_model_with_an_encoding_plugged_in_is_beside_itself():
    for kind in adapter.TARGETS:
        table = adapter.time_adapter(kind, adapter.Size(1, 16), 1, 0.0)
        assert [row.name for row in table.rows if not row.ours] == ["the model's own"]
        assert all(row.error < 1e-4 for row in table.rows)
        assert len(table.targets) == 4
        assert f"ALiBi, {kind} / the model's own" in [target.what for target in table.targets]


def test_a_model_that_decodes_other_logits_is_not_timed(monkeypatch):
    from posenc.models.hf import hooks

    wrong = lambda *args, **kwargs: attend(*args, **kwargs) * 1.01 ** args[0].shape[2]  # noqa: E731
    monkeypatch.setattr(hooks, "attend", wrong)
    with pytest.raises(TypeError, match="another output with its own encoding"):
        adapter.time_adapter("prefill", adapter.Size(1, 16), 1, 0.0)
