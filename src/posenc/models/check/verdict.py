"""Check a model by rules, by comparing its files, and by the loss of its weights.

    checked = check(Path("model"), text=Path("mine.txt"))
    checked.verdict         "no fault found", "fault" or "cannot say"

A model has the lowest loss with the config that it was trained with, so no reference code is
needed. If there are weights, their loss on a text is measured with the config and with changed
configs. The config has a fault if a change lowers the loss significantly, by more than
`loss.MARGIN`. A check that cannot be made gives "cannot say".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posenc.models.check import differences, faults, readers
from posenc.models.check.differences import Difference
from posenc.models.check.faults import RULES, Fault
from posenc.models.check.variants import BESIDE, KEYS, Variant, further, key_of, variants
from posenc.models.config.source import Source
from posenc.models.config.spec import Spec
from posenc.models.files.errors import Broken, ModelError
from posenc.models.files.folder import ModelFiles
from posenc.models.inspection import name_of
from posenc.support.provenance import Provenance, since
from posenc.support.text import printable

# Checking a config alone must not import torch, which this module needs
if TYPE_CHECKING:
    from torch import Tensor

    from posenc.models.check.loss import Opened, Trial

Progress = Callable[[str, int, int], None]
Verdict = Literal["no fault found", "fault", "cannot say"]
EXIT_CODES: dict[Verdict, int] = {"no fault found": 0, "fault": 1, "cannot say": 3}
SCHEMA = 1
# Largest difference from the lowest loss of a change that may be the right one too: in bits per
# token, and as a share of the bits that the best change saves
NEAR, NEAR_SHARE = 0.02, 0.05
LEAST = 64  # shortest excerpt in tokens on which losses can be compared
LEAST_BITS = 1.0  # lowest entropy of the token frequencies of a text
MOST_TOKENS = 2048  # longest excerpt in tokens, for trials of windows
NO_FILES = ModelFiles(Path(), None, (), None, ())
# Faults that no rule can detect, since the wrong value is plausible
PLAUSIBLE = (
    "another base, share of channels, scaling, factor, original length, softmax scale or window"
    " than in training, and rows of queries or keys in the other layout"
)


@dataclass(frozen=True)
class Check:
    """Result of a check: faults, losses with changed configs, and checks that could not be made.

    With `strict`, warnings count as faults. `ignored` has the names of disabled rules, and
    `undetectable` the kinds of fault that this check could not find.
    """

    name: str  # name of the folder
    file: str
    findings: tuple[Fault, ...]
    trials: tuple[Trial, ...]
    unknown: tuple[str, ...]  # checks that could not be made, and why
    asked: tuple[str, ...]  # checks that were made
    provenance: Provenance | None = None
    schema: int = SCHEMA
    strict: bool = False
    ignored: tuple[str, ...] = ()
    undetectable: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        counted = ("error", "warning") if self.strict else ("error",)
        if any(finding.level in counted for finding in self.findings):
            return "fault"
        return "cannot say" if self.unknown else "no fault found"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Return the result as dicts, lists, strings and numbers, for `json.dumps`."""
        return {
            "schema": self.schema,
            "name": self.name,
            "provenance": self.provenance and asdict(self.provenance),
            "file": self.file,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "strict": self.strict,
            "ignored": list(self.ignored),
            "asked": list(self.asked),
            "undetectable": list(self.undetectable),
            "findings": [
                {
                    "rule": finding.rule.name,
                    "level": finding.level,
                    "file": finding.file,
                    "key": finding.key,
                    "message": finding.message,
                    "threads": finding.rule.links,
                }
                for finding in self.findings
            ],
            "trials": [
                asdict(trial) | {"better": trial.better, "worse": trial.worse}
                for trial in self.trials
            ],
            "unknown": list(self.unknown),
        }


def check(
    model: Path | Source,
    letters: str | None = None,
    against: Path | None = None,
    progress: Progress = lambda doing, count, of: None,
    used_by: Sequence[str] = (),
    strict: bool = False,
    ignore: Sequence[str] = (),
) -> Check:
    """Check the config of a model, and also its weights if `model` is a folder or a GGUF file.

    - `letters`: text for the trials; None: the packaged novel
    - `against`: another file of the same model
    - `progress`: called with the name of a trial, its number, and the number of trials
    - `used_by`: programs in readers.toml that will read the config
    - `strict`: True counts warnings as faults
    - `ignore`: names of rules to disable

    Raises ModelError if there is no file to read, and ValueError for an unknown program or rule.
    """
    start, names, source = time.time(), readers.named(used_by), Source.of(model)
    path = source.path
    ignored = tuple(dict.fromkeys(map(_rule_named, ignore)))
    try:
        files, found = source.files, faults.faults(source)
    except Broken as error:
        name = path.name if path.is_file() else "config.json"
        broken = Fault(RULES["broken-file"], str(error), name)
        files, found = NO_FILES, faults.Faults(name, None, (broken,))
    asked = [f"the rules of {printable(found.file)}"]
    findings, unknown = [*found.findings], [*found.unknown]
    if found.spec and files.config and files.config.name == found.file:
        findings += readers.findings(source.values or {}, found.spec, found.file, names)
    others = [against] if against else _beside(path)
    for other in others if found.spec else []:
        try:
            findings += _differing(source, other)
            asked.append(f"{printable(found.file)} against {printable(other.name)}")
        except ModelError as error:
            unknown.append(f"the two files could not be compared: {error}")
    tried: list[Trial] = []
    tokens = 0
    turns = found.spec is not None and bool(found.spec.text_stack.rotary)
    if turns and files.weights and files.format not in ("safetensors", "gguf"):
        kind = files.format or "pickles"
        unknown.append(f"its weights are {kind}, which are not read. Pass safetensors or GGUF")
    elif turns and files.weights:
        try:
            tried, tokens = _tried(source, letters, progress)
            asked.append(
                f"{len({trial.name for trial in tried}) - 2} changed configs by their loss"
            )
            findings += _proved(tried, found.file)
            unknown += _inconclusive(tried)
        except Broken as error:
            findings.append(Fault(RULES["broken-file"], str(error), found.file))
        except ModelError as error:
            unknown.append(f"its weights could not be tested: {error}")
    kept = [finding for finding in findings if finding.rule.name not in ignored]
    unknown += _ignored_errors(findings, kept, found)
    return Check(
        name_of(path), found.file, tuple(kept), tuple(tried), tuple(unknown), tuple(asked),
        since(start), SCHEMA, strict, ignored, tuple(_undetectable(tried, tokens) if turns else ()),
    )  # fmt: skip


def _rule_named(name: str) -> str:
    """Return `name` if it is the name of a rule. Raises ValueError otherwise."""
    if name not in RULES:
        near = get_close_matches(name, RULES, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Choose from {', '.join(RULES)}."
        raise ValueError(f"`ignore` must be the name of a rule, got {printable(name)}. {hint}")
    return name


def _ignored_errors(
    findings: list[Fault], kept: list[Fault], found: faults.Faults
) -> Iterator[str]:
    """Yield a sentence for each error that ended the check, although its rule was disabled."""
    for finding in findings:
        if finding not in kept and (found.spec is None or finding.rule is RULES["broken-file"]):
            yield f"{finding.rule.name} is ignored, but it ends the check: {finding.message}"


def _undetectable(tried: list[Trial], tokens: int) -> Iterator[str]:
    """Yield the kinds of fault that the check cannot detect."""
    if not tried:
        yield f"by rules alone: {PLAUSIBLE}"
        return
    alike = [x.name for x in tried if x.kind != "as written" and not (x.worse or x.better)]
    alike = [*dict.fromkeys(alike)]
    if alike:
        yield f"not distinguishable from the config in these texts: {', '.join(alike)}"
    yield f"in texts of {tokens:,} tokens: differences that appear only beyond them"


def _beside(path: Path) -> list[Path]:
    """Return the GGUF files beside the config of a folder."""
    return sorted(path.glob("*.gguf")) if path.is_dir() and (path / "config.json").exists() else []


def _differing(source: Source, other: Path) -> Iterator[Fault]:
    for difference in differences.compare(source, other):
        rule = RULES["contexts-differ"] if difference.what == "context" else RULES["files-differ"]
        yield Fault(rule, f"{difference}", other.name, _key(difference))


def _key(difference: Difference) -> str:
    return {"context": "max_position_embeddings", "window": "sliding_window"}.get(
        difference.what, ""
    )


def _tried(source: Source, letters: str | None, progress: Progress) -> tuple[list[Trial], int]:
    """Measure the loss of a model with its config and with changed configs.

    Returns the trials, and the number of tokens of the texts. The trained length limits the texts,
    but not below LEAST tokens, since a wrong factor may shorten it.
    """
    if letters is None:
        from posenc.analysis.text import novel_letters

        letters = novel_letters()
    progress("opening the model", 0, 1)
    try:
        from posenc.models.check.loss import EXCERPTS, TOKENS, bits_by_frequency, opened, trials

        with opened(source) as model:
            context = model.spec.context or TOKENS
            if context < LEAST:
                raise ModelError(
                    source.path, "max_position_embeddings", f"must be at least {LEAST} tokens, the"
                    " shortest text on which losses can be compared", context,
                )  # fmt: skip
            tokens = min(TOKENS, max(LEAST, model.spec.trained or context))
            near = model.excerpts(letters, tokens, EXCERPTS)
            _refuse_uniform(bits_by_frequency(near.flatten().tolist()))
            others, size = variants(model.spec), _length_for_windows(model.spec)
            far = size > tokens and size <= max(context, model.spec.trained or 0)
            reach = size if far else tokens
            windows = [
                x
                for x in others
                if x.kind == "window" and _windows_differ(model.spec, x.spec, reach)
            ]
            rest = [x for x in others if x.kind != "window"]
            found = trials(model, rest if far else [*rest, *windows], near, progress)
            texts, own = {tokens: near}, {tokens: found[0]}
            if far and windows:
                # Windows need longer texts, on which other changes that seem better are repeated
                leading = {trial.name for trial in found if trial.better or trial.unsure}
                again = [*(x for x in rest if x.name in leading), *windows]
                texts[size] = model.excerpts(letters, size, EXCERPTS)
                as_written = Variant("as written", "as written", model.spec)
                own[size], *longer = trials(model, again, texts[size], progress, as_written)
                found += longer
            if best := _best(found):
                (first,) = (variant for variant in others if variant.name == best.name)
                ids, read = texts[best.tokens], own[best.tokens]
                found += _two_changes(model, first, others, ids, read, progress)
            return found, tokens
    except ImportError as missing:
        raise ModelError(
            source.path,
            "",
            f"needs {missing.name} to load the weights. Install {missing.name}",
        ) from None


def _two_changes(
    model: Opened,
    first: Variant,
    others: list[Variant],
    ids: Tensor,
    own: Trial,
    progress: Progress,
) -> list[Trial]:
    """Measure the loss with two changes: the change `first`, and one other change.

    If two changes are better than one, the second change is then tried with other values of the
    first. Returns the trials that are significantly better than `first` alone. Their differences
    are those from `own`, the trial of the unchanged config.
    """
    from posenc.models.check.loss import trials

    pairs = further(first)
    found = _better(trials(model, pairs, ids, progress, first), own)
    if found:
        best = min(found, key=lambda trial: trial.bits).name
        second = [x for x in others if first.name + BESIDE + x.name == best]
        again = [pair for x in second for pair in further(x) if _sets_other_value(pair, first)]
        found += _better(trials(model, again, ids, progress, first), own)
    return found


def _better(tried: list[Trial], own: Trial) -> list[Trial]:
    """Return the significantly better trials, each with its difference from the trial `own`."""
    return [trial.than(own, len(tried)) for trial in tried if trial.better]


def _sets_other_value(pair: Variant, first: Variant) -> bool:
    """Test whether the second change of `pair` gives the config key of `first` another value."""
    second, name = pair.kind.split(BESIDE)[-1], pair.name.split(BESIDE)[-1]
    return key_of(second) == key_of(first.kind) and name != first.name


def _refuse_uniform(bits: float) -> None:
    """Raise ModelError for a text so repetitive that its loss cannot distinguish settings."""
    if bits < LEAST_BITS:
        problem = f"is too uniform: its tokens have {bits:.2f} bits of entropy"
        raise ModelError("the text", "", problem, allowed=f"{LEAST_BITS:g} or more")


def _windows_differ(spec: Spec, other: Spec, tokens: int) -> bool:
    """Test whether two specifications have different windows for a text of `tokens` tokens."""
    windows = ([min(layer.window or tokens, tokens) for layer in x.layers] for x in (spec, other))
    return next(windows) != next(windows)


def _length_for_windows(spec: Spec) -> int:
    """Return the length in tokens on which windows are tested: twice the largest window.

    Returns 2⁵³ if that length is too long to be tested.
    """
    size = 2 * max(layer.window or 0 for layer in spec.layers)
    return size if size <= MOST_TOKENS else 2**53


def _proved(tried: list[Trial], file: str) -> Iterator[Fault]:
    """Yield a fault if a change of the config lowers the loss significantly.

    The fault names a remedy only if one change, or several changes of one key, are better than all
    others and better than token frequencies. Otherwise the right change was not tried, and a remedy
    might name a key that is correct.
    """
    best = _best(tried)
    if best is None:
        return
    gaps = _compared_with_best(best.name, tried)
    near = max(NEAR, NEAR_SHARE * -best.difference)
    # A change that is significantly worse than the config is also worse than the best change
    rivals = [x for x, by in gaps if by.difference < near or (by.low <= 0 and not x.worse)]
    names = dict.fromkeys((best.name, *(trial.name for trial in rivals)))
    why = _doubt(best, rivals)
    measured = (
        f"{best.bits:.3f} bits per token, {-best.difference:.3f} fewer than with the config as"
        f" written ({-best.high:.3f} … {-best.low:.3f})"
    )
    compared = f"token frequencies alone need {best.by_frequency:.3f}"
    rest = [(by.difference, x.name) for x, by in gaps if why or x.name not in names]
    if rest:
        gap, second = min(rest)
        compared = f"the next best change, {second}, needs {gap:.3f} more; {compared}"
    if why:
        message = (
            "the weights contradict the config, but none of the tried changes fits: the best is"
            f" {' or '.join(names)}, {measured}, and {why}; {compared}"
        )
    else:
        message = (
            f"the weights predict text better with {' or '.join(names)}: {measured}; {compared}"
        )
    yield Fault(RULES["weights-disagree"], message, file, "" if why else KEYS.get(best.kind, ""))


def _best(tried: list[Trial]) -> Trial | None:
    """Return the change with the lowest loss, or None if no change is significantly better.

    Trials on the longest texts take precedence.

    A multiple of the softmax scale alone does not count: scores are also too small or too large if
    training ended early, or if a norm differs from training.
    """
    better = [trial for trial in tried if trial.better]
    if all(trial.kind == "multiple" for trial in better):
        return None
    longest = max(trial.tokens for trial in tried)
    pool = [trial for trial in better if trial.tokens == longest] or better
    return min(pool, key=lambda trial: trial.difference)


def _compared_with_best(best: str, tried: list[Trial]) -> list[tuple[Trial, Trial]]:
    """Return each trial except the best, together with its comparison with the best trial."""
    on = {trial.tokens: trial for trial in tried if trial.name == best}
    others = [x for x in tried if x.name not in (best, "as written") and x.tokens in on]
    return [(trial, trial.than(on[trial.tokens], len(others))) for trial in others]


def _doubt(best: Trial, rivals: list[Trial]) -> str:
    """Return a reason why the change with the lowest loss may not be the right one, or ""."""
    kinds = best.kind.split(BESIDE)
    if "none" in kinds:
        return "it ignores positions"
    if "multiple" in kinds:
        return "scores may be too small or too large for other reasons than the config"
    if len({key_of(trial.kind) for trial in (best, *rivals)}) > 1:
        return "they are too close to determine which is correct"
    if best.bits >= best.by_frequency:
        return "it predicts no better than token frequencies"
    return ""


def _inconclusive(tried: list[Trial]) -> Iterator[str]:
    """Yield the reasons why the losses are inconclusive, such as an untrained model."""
    if _best(tried):
        return
    for trial in tried:
        if trial.better:
            yield (
                f"with {trial.name} the model needs {-trial.difference:.3f} fewer bits per token:"
                " its training ended early, or its norms or scores have another scale than the"
                " config states"
            )
        if trial.unsure:
            half = (trial.high - trial.low) / 2
            yield (
                f"with {trial.name} the model may be better, by {trial.difference:+.3f} ±"
                f" {half:.3f} bits per token. Pass a longer text"
            )
    if not any(trial.worse or trial.better for trial in tried):
        yield (
            "no change of the config makes the loss higher, not even the removal of positions: the"
            " weights are untrained, or this text is unsuitable"
        )
