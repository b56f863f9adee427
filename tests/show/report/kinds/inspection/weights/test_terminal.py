"""Weights as a person sees them, against the sentences on them."""

import io

from rich.console import Console

from posenc.show.report.kinds.inspection.weights.phrases import layout, unmeasured
from posenc.show.report.kinds.inspection.weights.terminal import print_weights


def test_each_tensor_has_its_curves_and_the_layout_comes_last(weighed):
    console = Console(file=io.StringIO(), width=400)
    print_weights(weighed, console)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]
    assert lines[0] == "wpe.weight"
    assert "norm     ▁▁▁▁▁▁▁▁ 1 … 1" in lines
    assert "bias.weight, -2 … 4 tokens back, by buckets" in lines
    assert any(line.startswith("head 0 ▅▅▅█▇▇▁ -3 … 2") for line in lines)
    assert "layers.0.emb_rel_k ▁█▅ 1 … 3" in lines
    assert "queries ▁█ 1 … 2" in lines
    last = [*layout(weighed), *unmeasured(weighed)]
    assert lines[-len(last) :] == last
