"""Write what the explorer's page shows of studies; a test compares it with the stores."""

from importlib.resources import files
from pathlib import Path

from posenc.show.explorer import data, study_curves

if __name__ == "__main__":
    studies = Path(__file__).parent.parent / "studies"
    data.write(
        study_curves.measured(studies),
        Path(str(files("posenc.show.explorer"))) / "study_curves.json",
    )
