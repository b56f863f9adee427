"""Write the study results that the explorer shows; a test compares them with stored outcomes."""

from importlib.resources import files
from pathlib import Path

from posenc.show.explorer import data, study_curves

if __name__ == "__main__":
    studies = Path(__file__).parent.parent / "studies"
    data.write(
        study_curves.measured(studies),
        Path(str(files("posenc.show.explorer"))) / "study_curves.json",
    )
