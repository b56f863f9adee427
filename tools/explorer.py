"""Write what the explorer's page shows of studies; a test compares it with the stores."""

from importlib.resources import files
from pathlib import Path

from posenc.show.explorer import data, trained

if __name__ == "__main__":
    studies = Path(__file__).parent.parent / "studies"
    data.write(trained.measured(studies), Path(str(files("posenc.show.explorer"))) / "trained.json")
