"""Sentences and table cells about the outcomes of a study."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from posenc.lab.study import statistics
from posenc.lab.study.analysis import LEVEL, Analysis, Contrast, Row, refusal
from posenc.lab.study.statistics import Interval
from posenc.support.numbers import number

UNDECIDED = "no difference shown"  # this is not a claim of equality
EQUAL = "equal within the plan's margin"  # an outcome of a test for equality
BASELINES = "cropped: only the last L tokens; windowed: each token sees the L tokens before it"
POSITIONS = "bits within L, by the number of characters before"


def in_bits(rows: Sequence[Row]) -> dict[str, bool]:
    """Map each task to True if it is measured in bits, or False if in shares of right answers."""
    return {row.task: row.bits for row in rows}


def unit(row: Row) -> str:
    """Return the unit of the outcomes of a task."""
    if not row.bits:
        what = {"images": "pictures", "sentences": "sentences"}.get(row.task, "texts")
        return f"{what} all right, %"
    return "bits per word" if row.task == "masked" else "bits per character"


def span(metric: str) -> str:
    """Format the test lengths of a metric as multiples of the trained length L: "L…2L", "1.2 L"."""
    return "L…2L" if metric == "area" else f"{metric.removeprefix('at ')} L"


def conditions(analysis: Analysis) -> str:
    """Format the conditions of a study's outcomes: lengths, learning rate, steps and seeds.

    "at 1.2 L, L = 10, learning rate 0.001, 2,000 steps, 10 seeds"
    """
    over = "over" if analysis.metric == "area" else "at"
    parts = [f"{over} {span(analysis.metric)}"]
    trained = sorted({row.trained for row in analysis.rows if row.trained})
    if trained:
        parts.append(f"L = {' or '.join(map(str, trained))}")
    rates = {row.encoding: number(row.rate, 2) for row in analysis.rows if row.rate}
    tried = ", ".join(number(rate, 2) for rate in analysis.rates)
    if analysis.profile is not None:
        each = f" of each row, chosen at n ≤ L of {tried}" * bool(tried)
        parts.append(f"learning rate {number(analysis.profile.rate, 2)}{each}")
    elif rates and not tried:
        parts.append(f"learning rate {' or '.join(dict.fromkeys(rates.values()))}")
    elif rates:
        chosen = ", ".join(f"{name} {rate}" for name, rate in rates.items())
        parts.append(f"learning rates that were chosen at n ≤ L of {tried} ({chosen})")
    if analysis.steps is not None:
        parts.append(f"{analysis.steps:,} steps")
    return ", ".join([*parts, *([seeds(analysis.rows)] if analysis.rows else [])])


def share(value: float | None, bits: bool) -> str:
    return "" if value is None else f"{value:.3f}" if bits else f"{100 * value:.1f} %"


def interval(interval: Interval | None, bits: bool) -> str:
    if interval is None:
        return ""
    low, high = interval.low, interval.high
    return f"{low:.3f} … {high:.3f}" if bits else f"{100 * low:.1f} … {100 * high:.1f}"


def by_position(row: Row) -> dict[str, float]:
    """Group a language model's mean bits by the number of preceding characters: 1, 2–3, …"""
    within, starts, groups = len(row.positions), [1, 2], {}
    while starts[-1] < within:
        starts.append(starts[-1] + 2 ** max(1, starts[-1].bit_length() - 2))
    for first, end in pairwise(starts):
        bits = row.positions[first:end]
        last = first + len(bits) - 1
        if bits:
            groups[str(first) if first == last else f"{first}–{last}"] = fmean(bits)
    return groups


def note(row: Row) -> str:
    """Describe the problems of a result: seeds that did not learn the task, and failed seeds."""
    weak, of = len(row.undertrained), len(row.seeds)
    notes = ["undertrained" + f" in {weak} of {of} seeds" * (weak < of)] if weak else []
    for seed, why in row.failures.items():
        notes.append(f"seed {seed} failed: {why}")
    return "; ".join(notes)


def seeds(rows: Sequence[Row]) -> str:
    """Format the number of seeds of each row: "6 seeds", "2 to 6 seeds"."""
    counts = sorted({len(row.seeds) for row in rows})
    few = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{few} seed{'' if counts == [1] else 's'}"


def intervals(rows: Sequence[Row]) -> str:
    """Describe the confidence intervals, and how often they contained the truth in simulations."""
    fewest = min((len(row.seeds) for row in rows), default=0)
    if fewest < 2:
        return "Intervals of one seed are over prompts alone."
    held = statistics.coverage(fewest)
    return (
        "Intervals are t intervals for 95 % over seeds and prompts, which are the same for all"
        f" seeds; with {fewest} seeds, {100 * held:.0f} % of them contain the true value in the"
        " worst of several simulations."
    )


def sides(contrast: Contrast) -> str:
    """Format a contrast as a difference of encodings: "nope − rope", "nope + alibi − rope"."""
    pairs = [(contrast.one, contrast.other), *([contrast.than] if contrast.than else [])]
    written = [" − ".join(" + ".join(side) for side in pair) for pair in pairs]
    return written[0] if len(written) == 1 else " − ".join(f"({pair})" for pair in written)


def difference(value: float, bits: bool) -> str:
    """Format a difference in bits, or in percentage points."""
    return f"{value:+.3f}" if bits else f"{100 * value:+.1f}"


def verdict(contrast: Contrast) -> str:
    """Return the verdict on a contrast, such as which side is better."""
    if contrast.verdict or contrast.difference is None or contrast.adjusted is None:
        return contrast.verdict
    if contrast.equal is not None and contrast.equal < LEVEL:
        return EQUAL
    if not contrast.decided:
        return UNDECIDED
    if contrast.than is not None:
        larger = "first" if contrast.difference.value > 0 else "second"
        return f"the {larger} difference is larger"
    better = contrast.one if contrast.difference.value > 0 else contrast.other
    return f"{' + '.join(better)} is better"


def unit_of(contrast: Contrast, bits: Mapping[str, bool]) -> bool:
    """Return True if a contrast is measured in bits, False if in shares of right answers.

    A contrast of several tasks has the unit of the first.
    """
    return bits[contrast.task.split(", ")[0]]


def controls(analysis: Analysis) -> list[str]:
    """State the gains of positive controls, and the condition under which a claim is withdrawn.

    The list is empty if the plan has neither.
    """
    sentences = []
    for control in analysis.controls:
        if why := refusal(control):
            sentences.append(f"{control.task}: {why}.")
            continue
        assert control.difference is not None
        bits = unit_of(control, in_bits(analysis.rows))
        ends = interval(control.difference, bits)
        sentences.append(
            f"{control.task}: the positive control, {control.one[0]}, gains over"
            f" {control.other[0]}: {difference(control.difference.value, bits)} ({ends})."
        )
    if analysis.withdraw:
        sentences.append(f"As registered, this would withdraw the claim: {analysis.withdraw}")
    return sentences


def headline(analysis: Analysis) -> str:
    """Summarise the significant contrasts in one sentence; "" for a pilot or without contrasts."""
    if analysis.stamp or not analysis.contrasts:
        return ""
    decided = [contrast for contrast in analysis.contrasts if contrast.decided]
    if not decided:
        reasons = [contrast.verdict for contrast in analysis.contrasts if contrast.verdict]
        reason = reasons[0] if reasons else UNDECIDED
        return f"Undecided. {reason[0].upper()}{reason[1:]}"
    first, count = decided[0], len(analysis.contrasts)
    among = f"{len(decided)} of {count} contrasts are decided. " if count > 1 else ""
    said = f"On {first.task} {verdict(first)}"
    said += f": {sides(first)}" if first.than else f" than {' + '.join(_worse(first))}"
    return f"{among}{said}, {conditions(analysis)}"


def _worse(contrast: Contrast) -> Sequence[str]:
    assert contrast.difference is not None
    return contrast.other if contrast.difference.value > 0 else contrast.one


def findings(contrasts: Sequence[Contrast], bits: bool, where: str) -> list[str]:
    """Return sentences on a task's contrasts: first those with a conclusion, then the others."""
    sentences, open_, uncalled = [], [], []
    for contrast in contrasts:
        decision = verdict(contrast)
        if decision == UNDECIDED:
            open_.append(sides(contrast))
            continue
        if decision == EQUAL:
            sentences.append(f"{sides(contrast)}: {EQUAL}, {where}.")
            continue
        if contrast.difference is None or not contrast.decided:
            uncalled.append(f"{sides(contrast)} ({decision})")
            continue
        unit = "bits" if bits else "percentage points"
        low, high = sorted((abs(contrast.difference.low), abs(contrast.difference.high)))
        ends = " to ".join(difference(end, bits).removeprefix("+") for end in (low, high))
        than = f"than {' + '.join(_worse(contrast))}" if contrast.than is None else sides(contrast)
        sentences.append(f"{decision} {than}, by {ends} {unit}, {where}.")
    if open_:
        sentences.append(f"Neither a difference nor equality is shown: {'; '.join(open_)}.")
    return sentences + ([f"Not decided: {'; '.join(uncalled)}."] if uncalled else [])


def design(analysis: Analysis) -> str:
    """Describe the number of runs, the size of the models, and their training."""
    profile = analysis.profile
    tasks = len({row.task for row in analysis.rows})
    names = len({row.encoding for row in analysis.rows})
    plural = "" if tasks == 1 else "s"
    text = (
        f"{analysis.done} of {analysis.of} runs are done: {names} encodings on {tasks} task{plural}"
    )
    if analysis.rows:
        text += f", {seeds(analysis.rows)} each"
    if profile is None:
        return f"{text}."
    return (
        f"{text}. Each run trains a transformer of {profile.layers} layers, width {profile.width},"
        f" {profile.heads} heads, for {profile.steps:,} steps of {profile.batch} texts at one"
        f" learning rate, {number(profile.rate, 2)}, and tests {profile.prompts} prompts of each"
        " length. Results hold under these conditions, not for other lengths, rates and steps."
    )
