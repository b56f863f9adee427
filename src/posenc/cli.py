"""The commands of `posenc`: thin, over plain functions.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted. Data goes to stdout, progress and errors to
stderr; bad input gets one line, and nothing is overwritten. torch is imported inside the commands,
so that `posenc --help` answers at once.
"""

import gc
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from posenc import __version__, command_help, names
from posenc.extras import how_to_install
from posenc.models.files.errors import printable, shown
from posenc.provenance import command_line
from posenc.report.saving.interrupt import interruptible
from posenc.report.terminal import output

collects = gc.isenabled()
try:
    gc.disable()  # what is imported stays; to look through it for waste takes a fifth of `list`
    from cyclopts import App, CycloptsError, Parameter, Token, UnknownCommandError, validators
    from rich.console import Console
except ImportError:  # pragma: no cover
    sys.exit(f"error: the commands need the extra `cli`: {how_to_install('cli')}")
finally:
    if collects:
        gc.enable()

app = App(
    suppress_keyboard_interrupt=False,  # `main` says so itself, and exits with 130
    name="posenc",
    help="Positional encodings: every one, plugged into real attention, and measured.",
    version=__version__,
    help_epilogue=command_help.examples(""),
    default_parameter=Parameter(show_default=lambda value: value if value else None),
)


class UsageError(Exception):
    """An error that the user can mend; the message says how."""


class Failure(Exception):
    """An error of the machine or the library, though nothing was wrong with what was asked."""


def _token_count(_: type, words: Sequence[Token]) -> int:
    """Read a number of tokens, 131072, 131_072 or 1e6: no fraction, and none beyond JSON's."""
    text = words[0].value
    with suppress(ValueError, OverflowError):
        number = int(text) if text.lstrip("-").replace("_", "").isdecimal() else float(text)
        if number == int(number) and 1 <= number <= LARGEST:
            return int(number)
    raise UsageError(
        f"`{words[0].keyword}` is a whole number of tokens from 1 to {LARGEST:,}, got"
        f" {shown(text, 40)}."
    )


def _name(_: type, words: Sequence[Token]) -> str:
    """Read a path. An empty one, as of a variable that is not set, does not mean this folder."""
    path = words[0].value
    if not path or "\0" in path:
        what = words[0].keyword or "the path"
        raise UsageError(f"`{what}` is {'empty' if not path else 'no path: it holds a zero byte'}.")
    return path


def _place(_: type, words: Sequence[Token]) -> Path:
    return Path(_name(str, words))


LARGEST = 2**53  # beyond, readers of JSON disagree
Tokens = Annotated[int, Parameter(converter=_token_count)]
Place = Annotated[Path, Parameter(converter=_place)]
Force = Annotated[bool, Parameter(negative="")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]
Open = Annotated[bool, Parameter(name="--open", negative="", help="Show the page in a browser.")]
Figures = Annotated[
    Literal["png", "svg", "pdf"] | None,
    Parameter(help="Write each figure as a file too, in the folder `figures`: png, svg or pdf."),
]
Width = Annotated[
    float,
    Parameter(
        validator=validators.Number(gte=40, lte=1_000),
        help="Millimetres of those files across: 85 is a column of a paper, 183 a page.",
    ),
]
PAGE_WIDTH = 183.0
Names = Annotated[Sequence[str], Parameter(consume_multiple=True, negative="")]
AllowCode = Annotated[
    Sequence[str],
    Parameter(
        negative="",
        help="Run this code, my_module.py:Mine, which a file names, spelled as it is there; give it"
        " again for more. No other code that a file names is run.",
    ),
]
SMALL_WORK = "show", "compare", "report", "inspect", "convert", "explore"  # small tensors
USUAL_ENCODINGS = ("nope", "rope", "sinusoidal", "alibi", "t5")  # of a study that names none


@app.command(name="list")
def list_(*, as_json: AsJson = False) -> None:
    """List every encoding, by family, with what it does and who uses it.

    Parameters
    ----------
    as_json
        Print one JSON document instead.
    """
    if as_json:
        return _print_json([*names.cards().values()])
    from posenc.report.terminal import catalog

    catalog.catalog(names.cards().values(), Console())


@app.command
def show(
    name: str,
    /,
    *,
    measure: Annotated[bool, Parameter(negative="")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one encoding: what it means, its formula, its properties as measured, its paper.

    Of one of your own, also what attention, caches and packed texts ask of it, tried on it.

    Parameters
    ----------
    name
        As `posenc list` spells it; case and dashes do not matter. Or an encoding of your own, as
        my_module.py:Mine or package.module:Mine, which runs that code.
    measure
        Measure the properties anew, not as they came with this version.
    as_json
        Print one JSON document instead.
    """
    described = None
    if not names.is_own(name):
        _printed(name)
        described = None if measure else names.described(name)
    if described is None:
        described = _measured(name)
    if as_json:
        return _print_json(described)
    from posenc.report.terminal import tables

    tables.card(described, Console())


@app.command
def cite(*encodings: Annotated[str, Parameter(name="NAMES", required=True)]) -> None:
    """Print the BibTeX entries of encodings.

    Parameters
    ----------
    encodings
        As `posenc list` spells them.
    """
    for name in filter(names.is_own, encodings):
        mine = name.rpartition(":")[2]
        raise UsageError(f"{mine} is an encoding of your own, and has no paper to cite.")
    papers = dict.fromkeys(card["paper"]["bibtex"] for card in map(_printed, encodings))
    print("\n\n".join(papers))


@app.command
def compare(
    *names: str,
    text: Place | None = None,
    out: Place | None = None,
    figures: Figures = None,
    width: Width = PAGE_WIDTH,
    force: Force = False,
    open_: Open = False,
    as_json: AsJson = False,
) -> None:
    """Measure encodings side by side on a real text; all of them, unless you name some.

    Parameters
    ----------
    names
        As `posenc list` spells them; encodings of your own as my_module.py:Mine or
        package.module:Mine, which runs that code.
    text
        A text file in UTF-8; by default Jane Austen's Northanger Abbey.
    out
        A folder for `index.html`, which opens offline, `results.json`, and the explorer, which it
        links to. It must be new, empty, or hold an earlier report.
    force
        Write into the folder whatever else it holds. Only earlier pages are ever replaced.
    as_json
        Print the results as one JSON document instead of tables.
    """
    cards = _chosen(names)
    parsed = _text(text)
    _prepare(out, force, figures, open_)
    from posenc.studies import comparison

    with _own_code(cards), _progress() as progress:
        result = comparison.compare(cards, parsed, progress=progress)
        _write(result, out, figures, width, progress, _explorer(cards, out))
    from posenc.report.terminal import tables

    _show(result, lambda console: tables.comparison(result, console), out, as_json, open_)


@app.command
def report(
    *names: str,
    out: Place,
    text: Place | None = None,
    model: Place | None = None,
    figures: Figures = None,
    width: Width = PAGE_WIDTH,
    force: Force = False,
    open_: Open = False,
    as_json: AsJson = False,
) -> None:
    """Look closely at a few encodings, and at what a real model does with its own.

    Parameters
    ----------
    names
        As `posenc list` spells them; encodings of your own as my_module.py:Mine or
        package.module:Mine, which runs that code. The way from integers to RoPE and ALiBi, unless
        you name some.
    out
        A folder for `index.html`, which opens offline, and `results.json`. It must be new, empty,
        or hold an earlier report.
    text
        A text file in UTF-8; by default Jane Austen's Northanger Abbey.
    model
        A folder with a model of transformers, in safetensors, and its tokenizer.json; it reads the
        text. No code of it is run, and nothing is fetched.
    force
        Write into the folder whatever else it holds. Only files of those names are replaced.
    as_json
        Print the results as one JSON document too.
    """
    cards = _chosen(names)
    parsed = _text(text)
    _prepare(out, force, figures, open_)
    from posenc.analysis.text import novel
    from posenc.studies import portrait

    parsed = parsed or novel()
    with _own_code(cards), _progress() as progress:
        if model is not None:
            progress("reading the text with the model", 0, 1)
        reading = None if model is None else _read_quietly(model, parsed)
        result = portrait.portray(cards, parsed, reading, progress=progress)
        _write(result, out, figures, width, progress, _explorer(cards, out))
    from posenc.report.terminal import tables

    _show(
        result, lambda console: tables.comparison(result.comparison, console), out, as_json, open_
    )


@app.command
def inspect(
    model: Annotated[str, Parameter(converter=_name)],
    /,
    *,
    target: Tokens | None = None,
    weights: Annotated[bool, Parameter(negative="")] = False,
    out: Place | None = None,
    figures: Figures = None,
    width: Width = PAGE_WIDTH,
    force: Force = False,
    open_: Open = False,
    as_json: AsJson = False,
) -> None:
    """Say what a model does about positions, layer by layer, and what would break in longer texts.

    Parameters
    ----------
    model
        A config.json, a model folder, or a file of weights; or the model's id on the Hugging Face
        hub, to fetch its config. No code of a model is run, and no pickle loaded.
    target
        The length of text in question, in tokens: whether it fits, what would break and what to do
        about it, or what would have to be known to say so. The exit code is 0 for each answer.
    weights
        Read the weights too: tables, biases, the strength of each pair, and what they say of the
        layout. Safetensors, ONNX and GGUF.
    out
        A folder for `index.html`, which opens offline, and `results.json`.
    force
        Write into the folder whatever else it holds. Only those two files are ever replaced.
    as_json
        Print one JSON document instead.
    """
    from posenc.models import inspection
    from posenc.models.files import hub

    with _model_errors():
        path = hub.local(model, weights)
    _prepare(out, force, figures, open_)
    with _model_errors(), _progress() as progress:
        if weights:
            progress("reading weights", 0, 1)
        inspected = inspection.inspect(path, target, weights, "" if str(path) == model else model)
        _write(inspected, out, figures, width, progress)
    from posenc.report.terminal import tables

    _show(inspected, lambda console: tables.inspection(inspected, console), out, as_json, open_)


@app.command
def extend(
    path: Place,
    /,
    *,
    to: Tokens | None = None,
    method: str,
    factor: float | None = None,
    trained: Tokens | None = None,
    as_json: AsJson = False,
) -> None:
    """Write a config for longer texts; the old one is kept beside it.

    A text of `to` tokens is `factor` times as long as what the model was `trained` on: say one or
    two of the three. Qwen3's own recipe is --factor 4 --trained 32768 --method yarn.

    Parameters
    ----------
    path
        A config.json, or a model folder.
    to
        The length of text that it should serve, in tokens.
    method
        linear, ntk, dynamic, yarn or llama3.
    factor
        How many times longer texts become.
    trained
        The length that the model was trained on, where that is not what its config says.
    as_json
        Print what changed as one JSON document.
    """
    from posenc.models import extend as extension

    with _model_errors():
        extended = extension.extend(path, to, method, factor, trained)
    if as_json:
        changes = [vars(change) for change in extended.changes]
        return _print_json(
            {"config": str(extended.config), "kept": str(extended.kept), "changes": changes}
            | {"notes": extended.notes}
        )
    for change in extended.changes:
        before = "nothing" if change.before is None else json.dumps(change.before)
        print(f"{change.key}: {before} → {json.dumps(change.after, ensure_ascii=False)}")
    for note in extended.notes:
        print(f"note: {note}")
    print(f"{extended.config} is written; the config as it was is kept as {extended.kept.name}.")


@app.command
def convert(
    path: Place,
    /,
    *,
    layout: Literal["half", "interleaved"],
    out: Place,
    was: Literal["half", "interleaved"] | None = None,
    as_json: AsJson = False,
) -> None:
    """Write a copy of a model whose queries and keys pair their channels in the other layout.

    Parameters
    ----------
    path
        A model folder with a config.json and weights in safetensors; or a GGUF file, which becomes
        such a folder. What blocks of quantised numbers stand for is written in float32.
    layout
        Where the two channels of a pair are to sit: half a head apart, or side by side.
    out
        A new folder for the copy.
    was
        The layout that it has, where its weights do not show it; else it is as its config says.
    as_json
        Print what was done as one JSON document.
    """
    from posenc.models import convert as conversion

    with _model_errors(), _progress() as progress:
        converted = conversion.convert(path, layout, out, was, progress)
    if as_json:
        return _print_json(vars(converted) | {"out": str(converted.out)})
    size = f"{converted.bytes / 2**20:,.1f} MiB"
    print(
        f"{converted.was} → {converted.now}:"
        f" {len(converted.moved)} of {converted.tensors} tensors moved"
    )
    print(f"it was in layout {converted.was!r}: {converted.by}")
    print(f"{converted.out} is written, {size}; the model as it was is untouched.")
    for note in converted.notes:
        print(f"note: {note}")


@app.command
def explore(
    *what: Annotated[str, Parameter(converter=_name)],
    study: Place | None = None,
    out: Place = Path("explore.html"),
    browser: bool = True,
    force: Force = False,
) -> None:
    """Write a page that runs the encodings themselves, and open it: sliders, order, context.

    Parameters
    ----------
    what
        Encodings to begin with, as `posenc list` spells them; encodings of your own as
        my_module.py:Mine or package.module:Mine, which runs that code; and models: a config.json, a
        model folder, or an id on the Hugging Face hub. No code of a model is run. The first folder
        with a tokenizer.json and weights gives 2,000 common words their vectors.
    study
        The folder of a study, whose results stand beside the encodings.
    out
        The file, which opens offline. It must be new, or an earlier page.
    browser
        Open the page; with --no-browser it is only written.
    force
        Replace the file whatever it is.
    """
    from posenc.explorer import document
    from posenc.explorer.explore import explorer, sorted_out

    try:
        document.check_place(out, force)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None
    with _model_errors(), _study_errors():
        try:
            cards, paths = sorted_out(what)
        except LookupError as error:
            raise UsageError(error.args[0]) from None
        with _own_code(cards):
            page = explorer(cards, paths, study)
    try:
        document.write(page.html, out)
    except OSError as error:
        raise Failure(f"{out} could not be written: {error.strerror}.") from None
    for note in page.data["notes"]:
        print(f"note: {printable(note, 2_000)}", file=sys.stderr)
    print(f"{printable(str(out), 4_000)} is written, {len(page.html) / 2**20:.1f} MiB.")
    if browser:
        _open(out)


def _open(page: Path) -> None:
    import webbrowser

    with suppress(webbrowser.Error):
        if webbrowser.open(page.resolve().as_uri()):
            return
    print("note: no browser could be opened here; open the file in one.", file=sys.stderr)


@app.command
def bench(
    *parts: str,
    quick: Annotated[bool, Parameter(negative="")] = False,
    malloc: Literal["warm", "default"] = "warm",
    out: Place | None = None,
    figures: Figures = None,
    width: Width = PAGE_WIDTH,
    force: Force = False,
    open_: Open = False,
    as_json: AsJson = False,
) -> None:
    """Measure posenc beside other libraries in one run, as ratios to the limit.

    Parameters
    ----------
    parts
        rotation, embeddings, attention, serving (one query on keys that heads share, a cache,
        packed documents, a small prefill), training, study (a step of `posenc study` with every
        encoding), adapter (in a model of transformers), start-up, fast (by Numba); all of these,
        unless you name some; and growth (a layer with each encoding, up to 65,536 tokens).
    quick
        Fewer cases and samples: three minutes instead of half an hour.
    malloc
        "warm" keeps the memory of freed tensors, as allocators of GPUs do. With "default" the
        system hands out large tensors anew and clears them, which is most of the time of a copy.
    out
        A folder for `index.html`, which opens offline, and `results.json`.
    force
        Write into the folder whatever else it holds. Only those two files are ever replaced.
    as_json
        Print one JSON document instead of tables.
    """
    from posenc.bench.timing import WARM

    if malloc == "warm" and any(os.environ.get(key) != value for key, value in WARM.items()):
        os.environ |= WARM  # read when a process starts: begin again
        os.execv(
            sys.executable,
            [sys.executable, "-P", "-m", "posenc", *shlex.split(command_line.get())[1:]],
        )
    _prepare(out, force, figures, open_)
    from posenc.bench import run

    try:
        with _progress() as progress:
            benchmarked = run.benchmark(parts, quick, progress)
            _write(benchmarked, out, figures, width, progress)
    except LookupError as error:
        raise UsageError(error.args[0]) from None
    from posenc.report.terminal import benchmarks

    _show(
        benchmarked, lambda console: benchmarks.benchmark(benchmarked, console), out, as_json, open_
    )


@app.command
def study(
    plan: Place | None = None,
    /,
    *,
    task: Names = (),
    encoding: Names = (),
    seeds: int | None = None,
    profile: str | None = None,
    text: Place | None = None,
    images: Place | None = None,
    out: Place | None = None,
    resume: Place | None = None,
    workers: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=4096))] = 2,
    ray: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    max_minutes: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    keep: Force = False,
    deviate: Force = False,
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Train small transformers that differ in their encoding alone, and test them on longer texts.

    What is done is kept: the same command goes on where it was, after Ctrl-C too.

    Parameters
    ----------
    plan
        A TOML file: hypothesis, tasks, encodings, profile, seeds, metric, contrast. Its hash is
        registered in the results before the first training. Without one, the options say it. Code
        that it names is run only with --allow-code.
    task
        copy, copy-constant, reverse, sort, mode, count, addition, hinted-addition, parity, recall,
        flip-flop; language, passkey, masked and sentences, made of a text; images; or one of your
        own, as my_tasks.py:double, which runs that code.
    encoding
        As `posenc list` spells them, or my_module.py:Mine, which runs that code.
    seeds
        Runs of each encoding, which are paired by seed; 6 can show a difference, fewer cannot.
    profile
        smoke (minutes), cpu (hours) or gpu: sizes of the model and of its training.
    text
        A text file in UTF-8 for language, passkey and masked, by default Jane Austen's Northanger
        Abbey; for sentences, with a label, a tab and a sentence a line.
    images
        An .npz file with arrays `pictures` (picture, side, side) and `labels`, for images; by
        default the digits of scikit-learn.
    out
        A folder for the results, or one that has some of this plan; by default named by the plan.
        Its page, `index.html`, opens offline; the numbers of it are in `results.json`.
    resume
        A folder with a study: go on with the plan that is registered there.
    workers
        Processes, each with one thread: as many as there are cores to spare.
    ray
        Run on Ray instead of processes: on the cluster at this address, or on one that is begun.
        Ray listens to the network: whoever reaches its ports, and has its token where it asks for
        one, can run code there.
    max_minutes
        Begin only what ends in that time, by what was measured, and say what is left out.
    keep
        Leave the trained models in the folder.
    deviate
        Go on although the plan, the code or a version has changed; the results will say so.
    as_json
        Print one JSON document instead of tables.
    """
    if resume is not None and (
        plan or task or encoding or seeds or profile or text or images or out
    ):
        raise UsageError("--resume goes on with the plan in its folder: name nothing beside it.")
    if plan is not None and (task or encoding or seeds or profile or text or images):
        raise UsageError(f"{plan} says what to study: leave out what else you named of it.")
    folder = out if resume is None else resume
    allowed = [*task, *encoding, *_code(allow_code)]
    with _study_errors():
        from posenc.study import lock

        if folder is not None and folder.exists():
            with lock.locked(folder):  # before torch is loaded, so that it answers at once
                pass
        from posenc.study import analysis, execute, store
        from posenc.study.plan import Plan

        if resume is not None:
            if (registered := analysis.plan_of(store.read(resume))) is None:
                raise UsageError(f"{resume} has no plan: name one.")
        elif plan is not None:
            registered = Plan.read(plan)
        else:
            registered = Plan.of(
                _content(task, encoding, seeds, profile, text, images), "the options"
            )
        folder = Path(f"study-{registered.digest[:8]}") if folder is None else folder
        engine = None
        if ray is not None:
            from posenc.study.on_ray import OnRay

            engine = partial(OnRay, address=ray[0] if ray else None)
        _check_page_folder(folder)
        print(
            f"registered: sha256 {registered.digest}, in {printable(str(folder))}", file=sys.stderr
        )
        try:
            with _progress() as progress:
                ended = execute.study(
                    registered, folder, workers, max_minutes=max_minutes, engine=engine, keep=keep,
                    deviate=deviate, progress=_study_progress(progress), allow_code=allowed,
                )  # fmt: skip
        except KeyboardInterrupt:
            print(f"\nto go on: {_resuming(folder, registered.code)}", file=sys.stderr)
            raise
        contents = store.read(folder)
        result = analysis.analyse(contents)
    missing = [f"{cell.task} {cell.name}, seed {cell.seed}: {why}" for cell, why in ended.missing]
    if as_json:
        _print_json(result.to_json() | {"missing": missing})
    else:
        from posenc.report.terminal import studies

        studies.study(result, Console())
    _study_page(contents, result, folder)
    for line in missing:
        print(f"not done: {printable(line, 1_000)}", file=sys.stderr)
    if missing:
        print(f"to go on: {_resuming(folder, registered.code)}", file=sys.stderr)
    wrong = [why for _, why in ended.missing if not why.startswith(("left out", "stopped"))]
    if wrong:
        raise Failure(f"{len(wrong)} of {ended.of} cells could not be done.")


@app.command
def results(
    path: Place | None = None,
    /,
    *,
    from_: Annotated[Path | None, Parameter(name="--from", converter=_place)] = None,
    task: Names = (),
    encoding: Names = (),
    protocol: str | None = None,
    cells: Annotated[bool, Parameter(negative="")] = False,
    properties: Annotated[bool, Parameter(negative="")] = False,
    bands: Place | None = None,
    against: Place | None = None,
    out: Place | None = None,
    figures: Figures = None,
    width: Width = PAGE_WIDTH,
    open_: Open = False,
    csv: Place | None = None,
    parquet: Place | None = None,
    force: Force = False,
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Read the results of a study: its table, its cells, every outcome. Nothing in it is changed.

    Parameters
    ----------
    path
        The folder of a study, or its results.db.
    from_
        The same of somebody else.
    task
        Only these tasks.
    encoding
        Only these encodings, by their names or by their labels.
    protocol
        How answers are graded: generated, forced, windowed, shuffled; sliding, apart, cropped.
    cells
        List the cells instead of the table.
    properties
        Also ask whether the measured properties of the encodings foretell the outcomes: each
        encoding is predicted by a fit on the other families.
    bands
        Ask which pairs of a RoPE break a text that is too long: in each model that the study kept,
        one band of pairs after another is slowed to angles that training has met, and stopped, at 2
        and 4 times the trained length. Write each outcome to this new CSV file.
    against
        The store of a study that this one repeats: also say which cells are equal to its, and
        whether each row agrees within its interval.
    out
        A folder for `index.html`, which opens offline, and `results.json`. It must be new, empty,
        or hold an earlier report or a study.
    csv
        Write all outcomes, prompt by prompt, to this new file.
    parquet
        The same as Parquet, which needs the extra `parquet`.
    force
        Write the page into its folder whatever else that holds. Only those two files are replaced.
    as_json
        Print one JSON document instead.
    """
    if (path is None) == (from_ is None):
        raise UsageError("name one store: the folder of a study, or its results.db.")
    _need_page(out, figures, open_)
    allowed = _code(allow_code)
    with _study_errors():
        from posenc.study import analysis, export, store

        contents = store.read(path or from_ or Path())
        try:
            chosen = export.chosen(contents, {"task": task, "encoding": encoding})
        except LookupError as error:
            raise UsageError(error.args[0]) from None
        if out is not None:
            studied = any((out / name).exists() for name in (store.RESULTS, store.RUNNING))
            _writable(out, force, beside=studied)
        for file, write in ((csv, export.write_csv), (parquet, export.write_parquet)):
            if file is not None:
                _export(file, chosen, write)
        recovered = []
        if bands is not None:
            from posenc.study.bands import recoveries, swap_kept, write_csv

            where = path or from_ or Path()
            folder = where if where.is_dir() else where.parent
            try:
                with _progress() as progress:
                    swapped = swap_kept(folder, encoding, progress=progress, allow_code=allowed)
            except ValueError as error:
                raise UsageError(str(error)) from None
            _export(bands, swapped, write_csv)
            recovered = recoveries(swapped)
        if out is None and (csv is not None or parquet is not None):
            return
        repeated = []
        if against is not None:
            from posenc.study.repetition import repetition

            try:
                repeated = repetition(chosen, store.read(against), protocol)
            except ValueError as error:
                if isinstance(error, store.StoreError):
                    raise
                raise UsageError(f"--against: {error}") from None
        result = None
        if out is not None or not cells:
            result = analysis.analyse(contents, protocol).only(task, encoding)
        foretold = None
        if properties and result is not None:
            from posenc.study.prediction import predict

            try:
                foretold = predict(contents, result, allow_code=allowed)
            except ValueError as error:
                raise UsageError(str(error)) from None
    if out is not None:
        from posenc.study.summary import summarise

        with _progress() as progress:
            _write(summarise(contents, result), out, figures, width, progress)
        if open_:
            _open(out / "index.html")
    if as_json:
        if result is not None and not cells:
            more = {} if foretold is None else {"properties": [p.to_json() for p in foretold]}
            if recovered:
                more["bands"] = [recovery.to_json() for recovery in recovered]
            if repeated:
                more["repetition"] = [row.to_json() for row in repeated]
            return _print_json(result.to_json() | more)
        return _print_json(
            [
                {"cell": digest, "settings": record.cell.settings, "label": record.cell.name}
                | {"failure": record.failure, "parameters": record.parameters}
                | {"means": [[*place, outcome.mean] for place, outcome in record.outcomes.items()]}
                for digest, record in chosen.records.items()
            ]
        )
    from posenc.report.terminal import studies

    console = Console()
    if result is None or cells:
        studies.cells(chosen, console)
    else:
        studies.study(result, console)
        for prediction in foretold or ():
            studies.prediction(prediction, console)
        studies.bands(recovered, console)
        studies.repetition(repeated, console)
    _say_where(out, console)


def _check_page_folder(folder: Path) -> None:
    """Refuse a folder whose page is not one of posenc's, before a study begins in it."""
    from posenc.report.saving.folder import reserve

    try:
        reserve(folder, beside=True)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None


def _study_page(contents: Any, result: Any, folder: Path) -> None:
    """Write the page of a study beside its store; without the extra for pages, say how to."""
    try:
        from posenc.report import page
    except ImportError as error:
        print(
            f"no page: it needs the extra `report` ({error.name} is missing):"
            f" {how_to_install('report')}",
            file=sys.stderr,
        )
        return
    from posenc.study.summary import summarise

    _write(summarise(contents, result), folder)
    print(f"the page: {printable(str(folder / page.PAGE), 4_000)}", file=sys.stderr)


def _export(file: Path, contents: Any, write: Callable[[Any, Path], int]) -> None:
    try:
        rows = write(contents, file)
    except FileExistsError:
        raise UsageError(f"{file} exists already: name a new file.") from None
    except ImportError as error:
        raise UsageError(str(error)) from None
    print(f"{printable(str(file), 4_000)}: {rows:,} rows", file=sys.stderr)


@contextmanager
def _study_errors() -> Iterator[None]:
    """Turn errors in a plan, a store or a folder into a sentence for the user to mend."""
    try:
        yield
    except ImportError as error:
        if error.name not in ("safetensors", "ray"):
            raise
        extra = "study" if error.name == "safetensors" else "ray"
        raise UsageError(f"this needs the extra `{extra}`: {how_to_install(extra)}") from None
    except ValueError as error:
        if type(error).__module__.startswith("posenc.study"):  # ours: a sentence
            raise UsageError(str(error)) from None
        raise


def _content(
    task: Sequence[str],
    encoding: Sequence[str],
    seeds: int | None,
    profile: str | None,
    text: Path | None,
    images: Path | None,
) -> dict[str, Any]:
    """Make the content of a plan from the options."""
    profile = profile or "smoke"
    alone = {"seeds": 1 if profile == "smoke" else 6} if seeds is None else {"seeds": seeds}
    named = {
        "tasks": [*task] or ["copy"],
        "encodings": [*encoding] or [*USUAL_ENCODINGS],
        "profile": profile,
    }
    files = {"text": text, "images": images}
    return named | alone | {name: str(path) for name, path in files.items() if path is not None}


def _resuming(folder: Path, code: Sequence[str]) -> str:
    allowed = (word for name in code for word in ("--allow-code", name))
    return shlex.join(["posenc", "study", "--resume", str(folder), *allowed])


def _code(wanted: Sequence[str]) -> Sequence[str]:
    for name in wanted:
        if not names.is_own(name):
            raise UsageError(f"`--allow-code` names code as my_module.py:Mine, got {shown(name)}.")
    return wanted


def _study_progress(progress: Callable[[str, int, int], None]) -> Callable[[Any], None]:
    """Say how far a study is: what runs, the last loss, tokens a second; and what went wrong."""
    noted = 0

    def say(status: Any) -> None:
        nonlocal noted
        for note in status.notes[noted:]:
            print(f"note: {printable(note, 1_000)}", file=sys.stderr)
        noted = len(status.notes)
        parts = []
        for name, far in status.running.items():
            step = f" {far.step}/{far.steps}, loss {far.loss:.3g}" if far else ""
            parts.append(name + step + (f", {far.speed:,.0f} tokens/s" if far else ""))
        if status.left is not None:
            parts.append(f"{-(-status.left // 60):.0f} min left")
        if status.fit is not None:
            parts.append(f"{status.fit} fit into the time")
        progress("; ".join(parts) or "starting", status.done, status.of)

    return say


@app.command(name="help")
def help_(*command: str) -> None:
    """Show the help of a command, or of all.

    Parameters
    ----------
    command
        Its name.
    """
    if command and command[0] not in _commands():
        raise UsageError(command_help.unknown(command[0], _commands()))
    app.help_print([*command])


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that lets a shell complete commands and options.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    print(app.generate_completion(prog_name="posenc", shell=shell))


def _commands() -> list[str]:
    return [name for name in app if not name.startswith("-")]


for _name_of_command in _commands():
    if _name_of_command in command_help.EXAMPLES:
        app[_name_of_command].help_epilogue = command_help.examples(_name_of_command)


def main(words: Sequence[str] | None = None) -> None:
    """The entry point: turns what went wrong into a line on stderr and an exit code."""
    try:
        words = sys.argv[1:] if words is None else words
        _take_threads(words)
        command_line.set(shlex.join(["posenc", *words]))
        with interruptible(), output.writable():
            app(words, result_action="return_value", print_error=False, exit_on_error=False)
    except UnknownCommandError as error:
        word = next((word for word in words or () if not word.startswith("-")), "")
        _say_wrong(command_help.unknown(word, _commands()) if word else error, 2)
    except (UsageError, CycloptsError) as error:
        _say_wrong(error, 2)
    except Failure as error:
        _say_wrong(error, 1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `posenc list | head`: nobody reads on
        output.abandon()
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            output.abandon()
        _say_wrong(
            f"{error.filename or 'standard output'} cannot be written to: {error.strerror}.", 1
        )


def _take_threads(words: Sequence[str]) -> None:
    """Take one thread where the work is small, before torch is imported and takes one a core.

    Several would wait for each other: `convert`, beside two busy processes on as many cores, took
    51 s of processor time with two threads, where one takes 3. A number that the user sets stays.
    """
    large = any(word.startswith("--model") for word in words)  # which reads a text
    if words and words[0] in SMALL_WORK and not large:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def _say_wrong(what: object, code: int) -> NoReturn:
    """Exit with a line on stderr that has no name without end and nothing a terminal obeys."""
    words = (word if len(word) < 300 else f"{word[:100]}…" for word in str(what).split())
    print(f"error: {printable(' '.join(words), 2_000)}", file=sys.stderr)
    sys.exit(code)


def _printed(name: str) -> dict[str, Any]:
    """The printed card of an encoding of the catalogue; a typo is answered without torch."""
    try:
        return names.find(name)
    except LookupError as error:
        raise UsageError(error.args[0]) from None


def _measured(name: str) -> dict[str, Any]:
    """Measure the properties of an encoding; try on one's own what attention asks of it, too."""
    (card,) = cards = _chosen([name])
    import torch

    from posenc.properties import check, conform
    from posenc.properties.card import described

    torch.manual_seed(0)  # of weights that are learned: findings are packaged with these
    with _own_code(cards):
        encoding = card.make(64, 4)
        findings = check(encoding, 64, 4)
        outcomes = conform(card, 64, 4) if names.is_own(name) else []
    return described(card, encoding.causal, findings, outcomes)


def _chosen(wanted: Sequence[str]) -> list[Any]:
    """The cards of these encodings."""
    for name in wanted:
        if not names.is_own(name):
            _printed(name)
    from posenc.catalog import choose

    try:
        return choose(wanted)
    except LookupError as error:
        raise UsageError(error.args[0]) from None


@contextmanager
def _own_code(cards: Sequence[Any]) -> Iterator[None]:
    """Say in one line what goes wrong in an encoding of the user's own."""
    from posenc import user_code

    try:
        yield
    except Exception as error:
        if (message := user_code.failure(error, cards)) is None:
            raise
        raise UsageError(message) from None


def _text(path: Path | None) -> Any:
    """Read the text of a file; None stands for the packaged novel."""
    from posenc.analysis import text

    try:
        return None if path is None else text.load_text(path)
    except ValueError as error:
        raise UsageError(f"--text: {error}.") from None


def _read_quietly(folder: Path, text: Any) -> Any:
    """Run a model on a text, and keep the messages of transformers to ourselves."""
    from posenc.studies import real_model

    with suppress(ImportError):
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
    try:
        return real_model.read(folder, text)
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise UsageError(f"--model: {error}") from None


@contextmanager
def _model_errors() -> Iterator[None]:
    """Turn errors in a model's files into a sentence for the user to mend."""
    try:
        yield
    except (ValueError, FileExistsError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise Failure(f"{error.filename or 'a file of the model'}: {error.strerror}.") from None


def _show(
    result: Any, table: Callable[[Console], None], out: Path | None, as_json: bool, open_: bool
) -> None:
    """Say what was found, as JSON or as its table, and where its page is, which may be opened."""
    if as_json:
        _print_json(result.to_json())
    else:
        console = Console()
        table(console)
        _say_where(out, console)
    if open_ and out is not None:
        _open(out / "index.html")


def _print_json(document: Any) -> None:
    plain = not output.universal()
    print(json.dumps(document, ensure_ascii=plain, indent=1, allow_nan=False))


def _writable(out: Path, force: bool, beside: bool = False) -> None:
    """Check the folder before the work begins, so that nothing is measured in vain."""
    try:
        from posenc.report import page
    except ImportError as error:
        raise UsageError(
            f"--out needs the extra `report` ({error.name} is missing): {how_to_install('report')}"
        ) from None
    try:
        page.reserve(out, force, beside)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None


def _explorer(cards: Sequence[Any], out: Path | None) -> dict[str, str] | None:
    """Write the explorer beside a report: the names of its views; None if a file is in the way."""
    if out is None:
        return None
    from posenc.catalog import CATALOG
    from posenc.explorer import data, document
    from posenc.report.saving.folder import EXPLORER

    try:
        document.check_place(out / EXPLORER)
        with _own_code(cards):
            document.write(document.Explorer(data.page(cards)).html, out / EXPLORER)
    except OSError:
        return None
    return {card.slug: data.renamed(card).slug for card in cards or CATALOG}


def _prepare(out: Path | None, force: bool, figures: str | None, open_: bool) -> None:
    """Check what is asked to be written, before the work begins."""
    _need_page(out, figures, open_)
    if out is not None:
        _writable(out, force)


def _need_page(out: Path | None, figures: str | None, open_: bool) -> None:
    for asked, option in ((figures, "--figures"), (open_, "--open")):
        if asked and out is None:
            raise UsageError(f"{option} needs a page: name its folder with --out.")


def _write(
    result: Any,
    out: Path | None,
    figures: str | None = None,
    width: float = PAGE_WIDTH,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
    views: dict[str, str] | None = None,
) -> None:
    if out is None:
        return
    from posenc.report import page

    try:
        page.write(result, out, figures, views, width, progress)
    except OSError as error:
        raise Failure(f"{out} could not be written: {error.strerror}.") from None


def _say_where(out: Path | None, console: Console) -> None:
    if out is not None:
        page, numbers = (printable(str(out / n), 4_000) for n in ("index.html", "results.json"))
        text = f"\nThe page: {page}   the numbers: {numbers}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)  # paths stay whole


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr; where that is no terminal, a line every ten seconds."""
    if not sys.stderr.isatty():
        yield _line_every(10.0)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda doing, done, of: bar.update(task, description=doing, completed=done, total=of)


def _line_every(seconds: float) -> Callable[[str, int, int], None]:
    begun = last = time.monotonic()

    def say(doing: str, done: int, of: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= seconds:
            last = now
            left = (now - begun) / done * (of - done) if done else None
            about = "" if left is None else f", about {_time_in_words(left)} left"
            print(f"{done} of {of}: {doing}{about}", file=sys.stderr, flush=True)

    return say


def _time_in_words(seconds: float) -> str:
    """A time to wait, in words: "40 s", "12 min"."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
