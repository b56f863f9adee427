"""Ask a stored study one of three questions, from the root of the repository.

python -m studies.questions properties FOLDER        do measured properties foretell outcomes?
python -m studies.questions bands FOLDER FILE        which pairs of a RoPE break long texts?
python -m studies.questions repetition FOLDER FIRST  does it agree with the study it repeats?
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from posenc.lab.study import analysis, export, store
from posenc.lab.study.own_code import Allowed
from studies.questions import bands, prediction, repetition, words


def properties(
    folder: Path, encodings: Sequence[str] = (), protocol: str | None = None, code: Allowed = ()
) -> list[prediction.Prediction]:
    """Predict the outcomes of each task by the measured properties of its encodings."""
    contents = store.read(folder)
    result = analysis.analyse(contents, protocol).only((), encodings)
    return prediction.predict(contents, result, allow_code=code)


def swapped_bands(
    folder: Path, file: Path, encodings: Sequence[str] = (), code: Allowed = ()
) -> list[bands.Recovery]:
    """Swap the bands of the models that a study kept, and write each outcome to a new CSV file."""
    if file.exists():
        raise ValueError(f"{file} exists already: name a new file.")
    swaps = bands.swap_kept(folder, encodings, allow_code=code)
    bands.write_csv(swaps, file)
    return bands.recoveries(swaps)


def repeated(
    folder: Path, first: Path, encodings: Sequence[str] = (), protocol: str | None = None
) -> list[repetition.Repeated]:
    """Compare a study with the first one that it repeats."""
    chosen = export.chosen(store.read(folder), {"encoding": encodings})
    return repetition.repetition(chosen, store.read(first), protocol)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m studies.questions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    questions = parser.add_subparsers(dest="question", required=True)
    seconds = {"properties": None, "bands": "file", "repetition": "first"}
    for name, second in seconds.items():
        question = questions.add_parser(name)
        question.add_argument("folder", type=Path, help="the folder of a study")
        if second is not None:
            question.add_argument(second, type=Path)
        question.add_argument("--encoding", nargs="+", default=(), help="only these, by label")
        question.add_argument("--json", action="store_true", help="print one JSON document")
        if name != "bands":
            question.add_argument("--protocol", help="how answers are graded, as in the results")
        if name != "repetition":
            question.add_argument(
                "--allow-code", nargs="+", default=(),
                help="run this code, my_module.py:Mine, which a file names, spelled as it is there",
            )  # fmt: skip
    return parser


def _answers(asked: argparse.Namespace) -> list[Any]:
    if asked.question == "properties":
        return list(properties(asked.folder, asked.encoding, asked.protocol, asked.allow_code))
    if asked.question == "bands":
        return list(swapped_bands(asked.folder, asked.file, asked.encoding, asked.allow_code))
    return list(repeated(asked.folder, asked.first, asked.encoding, asked.protocol))


def main(typed: Sequence[str]) -> int:
    """Answer one question on the terminal, and return the exit status."""
    asked = _options().parse_args(typed)
    try:
        answers = _answers(asked)
    except (LookupError, ValueError) as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps([answer.to_json() for answer in answers], indent=1, allow_nan=False))
        return 0
    console = Console()
    if asked.question == "properties":
        for answer in answers:
            words.prediction(answer, console)
    else:
        {"bands": words.bands, "repetition": words.repetition}[asked.question](answers, console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
