"""Analyse a stored study in one of three ways, from the root of the repository.

python -m studies.questions properties FOLDER        predict outcomes by measured properties
python -m studies.questions bands FOLDER FILE        find the pairs of a RoPE that break long texts
python -m studies.questions repetition FOLDER FIRST  compare a repetition with the first study
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from posenc.lab.study import analysis, export, store
from posenc.lab.study.user_code_gate import Allowed
from studies.questions import bands, prediction, repetition, words


def properties(
    folder: Path, encodings: Sequence[str] = (), protocol: str | None = None, code: Allowed = ()
) -> list[prediction.Prediction]:
    """Predict the outcomes of each task from the measured properties of the encodings."""
    contents = store.read(folder)
    result = analysis.analyse(contents, protocol).only((), encodings)
    return prediction.predict(contents, result, allow_code=code)


def swapped_bands(
    folder: Path, file: Path, encodings: Sequence[str] = (), code: Allowed = ()
) -> list[bands.Recovery]:
    """Slow or stop each band of rotary pairs in saved models; write outcomes to a new CSV file."""
    if file.exists():
        raise ValueError(f"FILE must be a new file, got {file}, which exists. Name another.")
    swaps = bands.swap_saved(folder, encodings, allow_code=code)
    bands.write_csv(swaps, file)
    return bands.recoveries(swaps)


def repeated(
    folder: Path, first: Path, encodings: Sequence[str] = (), protocol: str | None = None
) -> list[repetition.Repeated]:
    """Compare a repetition of a study with the first run."""
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
        question.add_argument("--encoding", nargs="+", default=(), help="labels of encodings")
        question.add_argument("--json", action="store_true", help="print one JSON document")
        if name != "bands":
            question.add_argument("--protocol", help="grading protocol, as of `posenc results`")
        if name != "repetition":
            question.add_argument(
                "--allow-code", nargs="+", default=(),
                help="allow this code, my_module.py:Mine, named in a file, spelled as in the file",
            )  # fmt: skip
    return parser


def _answers(options: argparse.Namespace) -> list[Any]:
    folder, encodings = options.folder, options.encoding
    if options.question == "properties":
        return list(properties(folder, encodings, options.protocol, options.allow_code))
    if options.question == "bands":
        return list(swapped_bands(folder, options.file, encodings, options.allow_code))
    return list(repeated(folder, options.first, encodings, options.protocol))


def main(arguments: Sequence[str]) -> int:
    """Run one analysis, print its results, and return the exit status."""
    options = _options().parse_args(arguments)
    try:
        answers = _answers(options)
    except (LookupError, ValueError) as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([answer.to_json() for answer in answers], indent=1, allow_nan=False))
        return 0
    console = Console()
    if options.question == "properties":
        for answer in answers:
            words.prediction(answer, console)
    else:
        {"bands": words.bands, "repetition": words.repetition}[options.question](answers, console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
