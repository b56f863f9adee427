"""Analysis of a study: a result for each encoding and task, and planned contrasts with p-values.

    in range   share of right answers, mean over the trained lengths n ≤ L
    gate       95 % of the answers at n = L are right, for each seed separately
    area       mean share over L < n ≤ 2L, with a t interval over seeds and prompts
    below      first length at which fewer than half of the answers are right

For a language model these are bits per character, where less is better. Reading only the last L
tokens ("cropped") and attending only L tokens back ("windowed") have rows of their own. Contrasts
compare runs paired by seed; a difference above 0 favours the first side. Rows are in the order of
the plan and not ranked, because only contrasts are tested.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import inf, isclose, isfinite
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from posenc.lab.study import statistics, tasks
from posenc.lab.study.cell import PROFILES, Cell, Profile
from posenc.lab.study.plan import BASELINES, MOST_SEEDS, Plan, PlanError, Side
from posenc.lab.study.statistics import Interval
from posenc.lab.study.store import BITS, Contents, Outcome, Record, StoreError
from posenc.support.arguments import brief
from posenc.support.names import is_own
from posenc.support.text import printable

# The first of these protocols that a task has is graded
PROTOCOLS = ("generated", "sliding", "forced", "apart")
RANGE = 0.95  # least share of right answers at n = L for a seed that counts as trained
SHARES = ("tokens",)  # protocols of float32 outcomes that are shares of right answers, not bits
LEVEL = 0.05  # a contrast is decided if its p by Holm is below


@dataclass(frozen=True)
class Row:
    """The results of one encoding on one task, by seed and as means over seeds."""

    task: str
    encoding: str
    protocol: str
    bits: bool  # bits per character instead of shares of right answers
    trained: int | None  # the length; None before a seed is done
    seeds: Sequence[int]
    failures: Mapping[int, str]  # failed seeds, with the reason
    curve: Mapping[int, Sequence[float]]  # by length, the mean of each seed
    means: Mapping[int, float]  # by length, the mean over seeds
    in_range: float | None
    value: Interval | None  # interval of the metric
    area: Interval | None  # interval over L < n ≤ 2L; None if that is the metric
    by_seed: Sequence[float]
    below: int | None
    parameters: int | None
    rate: float | None  # learning rate; None if seeds have several
    seconds: float | None  # median time of a step
    undertrained: Sequence[int]  # seeds that do not pass the gate
    baseline: str = ""  # "cropped" or "windowed" for the row of a baseline
    positions: Sequence[float] = ()  # bits of each character within L, mean over seeds and lengths


@dataclass(frozen=True)
class Contrast:
    """A planned comparison of encodings on a task: a difference, or a difference of differences."""

    task: str
    one: Sequence[str]
    other: Sequence[str]
    seeds: Sequence[int]
    difference: Interval | None
    by_seed: Sequence[float]
    p: float | None  # two-sided, exact sign-flip test
    adjusted: float | None  # p by Holm, over all contrasts of the plan
    equal: float | None  # p by Holm of a difference of the plan's margin or more; None: no margin
    verdict: str  # reason why the contrast cannot be decided; empty if it can
    # Two further sides, whose difference is subtracted from that of the first two
    than: tuple[Sequence[str], Sequence[str]] | None = None

    @property
    def terms(self) -> list[str]:
        """The names of all results that the contrast compares, such as "rope cropped at 12"."""
        return [name for side in (self.one, self.other, *(self.than or ())) for name in side]

    @property
    def decided(self) -> bool:
        """True if the Holm-adjusted p is below 5 % and the confidence interval excludes 0.

        False if a test has shown that both sides are equal within the plan's margin.
        """
        if self.verdict or self.difference is None or self.adjusted is None:
            return False
        if self.equal is not None and self.equal < LEVEL:
            return False
        return self.adjusted < LEVEL and not self.difference.low <= 0 <= self.difference.high


@dataclass(frozen=True)
class Analysis:
    """The analysis of a study: results by encoding and task, planned contrasts, and controls."""

    hypothesis: str
    registered: str  # digest of the plan; empty without one
    metric: str
    stamp: str  # reason why no claims can be made; empty if they can
    deviations: Sequence[str]
    pilots: Sequence[str]  # results known before the plan was written
    done: int
    of: int
    rows: Sequence[Row]
    baselines: Sequence[Row]  # for each row its baselines, cropped or windowed
    contrasts: Sequence[Contrast]
    profile: Profile | None  # profile of all cells; None if there are none or several
    steps: int | None  # training steps; None if they differ
    rates: Sequence[float]  # candidate rates, of which each row used its best; empty: no choice
    # The positive control against the negative one, for each task; empty: the plan names none
    controls: Sequence[Contrast] = ()
    withdraw: str = ""  # registered result that would withdraw the claim

    def only(self, task: Sequence[str] = (), encoding: Sequence[str] = ()) -> "Analysis":
        """Select the results and contrasts of these tasks and encodings; by default all."""

        def selected(name: str, *encodings: str) -> bool:
            return (not task or name in task) and (not encoding or {*encodings} <= {*encoding})

        return replace(
            self,
            rows=[row for row in self.rows if selected(row.task, row.encoding)],
            baselines=[
                row
                for row in self.baselines
                if selected(row.task, row.encoding.removesuffix(f" {row.baseline}"))
            ],
            contrasts=[one for one in self.contrasts if selected(one.task, *one.terms)],
            controls=[control for control in self.controls if selected(control.task)],
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def analyse(contents: Contents, protocol: str | None = None) -> Analysis:
    """Analyse the stored training runs of a study's last plan, or all runs if it has no plan.

    - `contents`: contents of the store
    - `protocol`: protocol that is graded; None: the first of `PROTOCOLS` that a task has
    """
    plan = plan_of(contents)
    cells = cells_of(contents)
    grid = _grid(contents, cells, plan)
    _check_protocol(contents, protocol)
    metric = "area" if plan is None else plan.metric
    chosen = None if plan is None or not plan.rates else chosen_rates(plan, contents)
    rows = [_row(task, name, runs, metric, protocol) for (task, name), runs in grid.items()]
    if chosen is not None:
        rows = [
            row if (row.task, row.encoding) in chosen else replace(row, rate=None) for row in rows
        ]
    baselines = (
        []
        if protocol
        else [
            replace(
                _row(*place, grid[place], metric, how), encoding=f"{place[1]} {how}", baseline=how
            )
            for place, row in zip(grid, rows, strict=True)
            for how in _baselines(row, grid[place])
        ]
    )
    seeds = min((len(row.seeds) for row in rows), default=0)
    graded = [one for runs in grid.values() for _, one in runs.values() if one is not None]
    stamp = "" if statistics.may_rank(seeds) else f"{seeds} seeds: no ranking claims"
    profiles = {x.profile for x in cells if chosen is None or (x.task, x.name) in chosen}
    steps = {cell.profile.steps for cell in cells}
    if contents.pilot:
        stamp = "pilot: not evidence"
    elif profiles & {PROFILES["smoke"]}:
        stamp = "smoke: no ranking claims"
    if any(_protocol(record, None) != _protocol(record, protocol) for record in graded):
        stamp = f"graded by {protocol}, which is not the registered protocol: no ranking claims"
    contrasts = [] if plan is None else _contrasts(plan, grid, protocol)
    controls = [] if plan is None else _controls(plan, grid)
    if plan is not None:
        contrasts = [_with_controls(contrast, controls, plan) for contrast in contrasts]
    done = sum(record is not None for runs in grid.values() for _, record in runs.values())
    return Analysis(
        "" if plan is None else plan.hypothesis,
        "" if plan is None else plan.digest,
        metric,
        stamp,
        contents.deviations,
        () if plan is None else plan.pilots,
        done,
        len(cells),
        rows,
        [row for row in baselines if row.value is not None],
        contrasts if not stamp else [_without_claim(contrast, stamp) for contrast in contrasts],
        profiles.pop() if len(profiles) == 1 else None,
        steps.pop() if len(steps) == 1 else None,
        () if plan is None else plan.rates,
        controls,
        "" if plan is None else plan.withdraw,
    )


def _baselines(row: Row, runs: Mapping[int, tuple[Cell, Record | None]]) -> tuple[str, ...]:
    """List the baseline evaluations of an encoding, such as "cropped", where the input is cut."""
    if row.protocol == "sliding":
        return BASELINES
    held = {name for _, record in runs.values() if record for name, _ in record.outcomes}
    return ("cropped",) if row.protocol == "generated" and "cropped" in held else ()


def _check_protocol(contents: Contents, protocol: str | None) -> None:
    """Raise PlanError if no stored outcome was computed under this evaluation protocol."""
    held = {name for record in contents.records.values() for name, _ in record.outcomes}
    if protocol and held and protocol not in held:
        raise PlanError(
            f"`protocol` must be one of {', '.join(sorted(held))}, got {brief(protocol)}."
        )


def cells_of(contents: Contents) -> list[Cell]:
    """Return the training runs (cells) of a study's last plan, or all runs if it has no plan."""
    if (plan := plan_of(contents)) is None:
        return [record.cell for record in contents.records.values()]
    return plan.cells(chosen_rates(plan, contents))


def plan_of(contents: Contents) -> Plan | None:
    """Return the last registered plan, or None. Raises PlanError if it is not a valid plan."""
    if not contents.plans:
        return None
    try:
        return Plan.stored(contents.plans[-1][1])
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PlanError(f"the plan in the store must be valid TOML: {error}.") from None


def chosen_rates(plan: Plan, contents: Contents) -> dict[tuple[str, str], float]:
    """Choose a learning rate for each encoding and task, by the results of the plan's trial runs.

    The rate with the best mean outcome within the trained length is chosen; of two equal ones, the
    rate with the lower last training loss.

    A row with missing trials has no rate; a rate with a failed trial comes last.
    """
    chosen = {}
    for rate in plan.rates:
        cells = [cell for cell in plan.trials() if cell.profile.rate == rate]
        for place, runs in _grid(contents, cells, plan).items():
            records = [record for _, record in runs.values() if record is not None]
            if len(records) == len(runs):
                chosen.setdefault(place, []).append((*_trial_score(records), rate))
    return {
        place: min(scores)[-1] for place, scores in chosen.items() if len(scores) == len(plan.rates)
    }


def _trial_score(records: Sequence[Record]) -> tuple[float, float]:
    """Return the sort key that ranks learning rates: (mean outcome, mean last loss).

    A lower key is better. A failed trial gives infinity.
    """
    if any(record.failure is not None for record in records):
        return inf, inf
    means = []
    for record in records:
        if not (graded := outcomes_graded(record, None)):
            name = f"{printable(record.cell.task)} {printable(record.cell.name)}"
            raise StoreError(
                f"the training run {name}, seed {record.cell.seed}, must have outcomes, or the"
                " reason why it failed, got neither. Run the study again."
            )
        sign = 1.0 if any(outcome.kind != BITS for outcome in graded.values()) else -1.0
        means += [sign * fmean(outcome.mean for outcome in graded.values())]
    # A model whose RoPE is extended without further training has no losses of its own
    return fmean(means), fmean(record.losses[-1] if record.losses else 0.0 for record in records)


Grid = dict[tuple[str, str], dict[int, tuple[Cell, Record | None]]]


def _grid(contents: Contents, cells: Sequence[Cell], plan: Plan | None) -> Grid:
    """Group training runs and their stored results by task and encoding, then by seed.

    Cells of a plan lack the settings that come from the task, which records have; they are compared
    without these settings.
    """

    def key(cell: Cell) -> str:
        if plan is None:
            return cell.digest
        # Trials are tested within the trained length only, also if the plan has tested lengths
        tested = cell.tested if plan.tested and cell.seed <= MOST_SEEDS else ()
        trained, told = cell.trained if plan.trained else None, 1 if cell.told else None
        return replace(cell, trained=trained, tested=tested, told=told, data="").digest

    records = {key(record.cell): record for record in contents.records.values()}
    grid: Grid = {}
    for cell in sorted(cells, key=lambda cell: cell.seed):
        record = records.get(key(cell))
        if record is not None and plan is not None and plan.trained is not None:
            # A row with its own trained length is measured from the plan's L on
            record = replace(record, cell=replace(record.cell, trained=plan.trained))
        grid.setdefault((cell.task, cell.name), {})[cell.seed] = cell, record
    return grid


def _row(
    task: str,
    name: str,
    runs: Mapping[int, tuple[Cell, Record | None]],
    metric: str,
    protocol: str | None,
) -> Row:
    records = {seed: record for seed, (_, record) in runs.items() if record is not None}
    failures = {
        seed: record.failure for seed, record in records.items() if record.failure is not None
    }
    good = {seed: record for seed, record in records.items() if record.failure is None}
    graded = {seed: outcomes_graded(record, protocol) for seed, record in good.items()}
    where = f"{printable(task)} {printable(name)}"
    if len({_shape(outcomes) for outcomes in graded.values()}) > 1:
        raise StoreError(
            f"{where}: all seeds must be tested on the same lengths and prompts, got different"
            " ones. Run the study again."
        )
    trained = next((_trained(record.cell) for record in records.values()), 0)
    # A row with its own trained length is tested there for having learned the task
    own = max([trained, *(cell.trained or 0 for cell, _ in runs.values())])
    lengths = sorted(next(iter(graded.values()), {}))
    curve = {n: [outcomes[n].mean for outcomes in graded.values()] for n in lengths}
    if not all(map(isfinite, chain.from_iterable(curve.values()))):
        raise StoreError(
            f"{where}: all outcomes must be finite numbers, got NaN or infinity. Run the study"
            " again."
        )
    used = _protocol(next(iter(good.values())), protocol) if good else ""
    bits = used not in SHARES and any(
        outcome.kind != BITS for outcomes in graded.values() for outcome in outcomes.values()
    )
    within = [fmean(curve[n]) for n in lengths if n <= trained]
    in_range = fmean(within) if within else None
    known = _measured(good.values(), protocol, metric, trained)
    area = [] if metric == "area" else _measured(good.values(), protocol, "area", trained)
    seconds = [record.seconds for record in good.values() if record.seconds is not None]
    means = {n: fmean(values) for n, values in curve.items()}
    rates = {cell.profile.rate for cell, _ in runs.values()}
    return Row(
        task,
        name,
        used,
        bits,
        trained or None,
        [*good],
        failures,
        curve,
        means,
        in_range,
        statistics.interval(known, share=not bits) if known else None,
        statistics.interval(area, share=not bits) if area else None,
        [vector.mean().item() for vector in known],
        None if bits else next((n for n in lengths if means[n] < 0.5), None),
        next((record.parameters for record in good.values()), None),
        rates.pop() if len(rates) == 1 else None,
        sorted(seconds)[len(seconds) // 2] if seconds else None,
        [] if bits else _untrained(good, own, protocol),
        positions=_positions(good.values(), trained) if used == "sliding" else (),
    )


def _positions(records: Iterable[Record], trained: int) -> list[float]:
    """Return a language model's bits per character at each position up to the trained length."""
    texts = [
        outcome.values[:trained].double()
        for record in records
        for (protocol, n), outcome in sorted(record.outcomes.items())
        if protocol == "position" and n >= trained
    ]
    return torch.stack(texts).mean(0).tolist() if texts else []


def _untrained(records: Mapping[int, Record], trained: int, protocol: str | None) -> list[int]:
    """List the seeds whose models did not learn the task.

    Their share of right answers at the trained length is below `RANGE`.
    """
    weak = []
    for seed, record in records.items():
        within = {n: x for n, x in outcomes_graded(record, protocol).items() if n <= trained}
        if within and within[max(within)].mean < RANGE:
            weak.append(seed)
    return weak


def _shape(outcomes: Mapping[int, Outcome]) -> tuple[tuple[int, str, int], ...]:
    return tuple((n, outcome.kind, outcome.prompts) for n, outcome in outcomes.items())


def _measured(
    records: Iterable[Record], protocol: str | None, metric: str, trained: int
) -> list[Tensor]:
    """Compute the study's metric for each run, as a vector with one value per prompt.

    Raises StoreError if runs have different numbers of prompts, or outcomes that are not finite.
    """
    vectors = [_vector(outcomes_graded(record, protocol), metric, trained) for record in records]
    measured = [vector for vector in vectors if vector is not None]
    if len({len(vector) for vector in measured}) > 1:
        raise StoreError(
            "all seeds of an encoding must be tested on the same prompts, got different ones. Run"
            " the study again."
        )
    if not all(vector.isfinite().all() for vector in measured):
        raise StoreError(
            "all outcomes must be finite numbers, got NaN or infinity. Run the study again."
        )
    return measured


def _contrasts(plan: Plan, grid: Grid, protocol: str | None) -> list[Contrast]:
    contrasts = []
    for task in plan.tasks:
        for sides in plan.contrast:
            if not plan.term(sides[0][0]).task:
                contrasts.append(_contrast(plan, grid, task, sides, protocol))
    for sides in plan.contrast:
        if plan.term(sides[0][0]).task:
            contrasts.append(_contrast(plan, grid, "", sides, protocol))
    equal = statistics.holm(
        {str(n): c.equal for n, c in enumerate(contrasts) if c.equal is not None}
    )
    adjusted = statistics.holm({str(n): c.p for n, c in enumerate(contrasts) if c.p is not None})
    tested = max((len(contrast.seeds) for contrast in contrasts), default=0)
    needed = statistics.seeds_for(len(contrasts))
    why = f"{tested} seeds cannot decide {len(contrasts)} contrasts: {needed} can"
    return [
        replace(
            contrast,
            adjusted=adjusted.get(str(n)),
            equal=equal.get(str(n)),
            verdict=contrast.verdict or (why if tested < needed else ""),
        )
        for n, contrast in enumerate(contrasts)
    ]


def _controls(plan: Plan, grid: Grid) -> list[Contrast]:
    """Return for each task the contrast of the positive control with the negative control."""
    if not (plan.positive and plan.negative):
        return []
    sides = (plan.positive,), (plan.negative,)
    controls = [_contrast(plan, grid, task, sides, None) for task in plan.tasks]
    return [replace(control, adjusted=control.p) for control in controls]


def _with_controls(contrast: Contrast, controls: Sequence[Contrast], plan: Plan) -> Contrast:
    """Mark a contrast as undecidable if the positive control of its task shows no gain."""
    terms = [plan.term(name).task or contrast.task for name in contrast.terms]
    for control in controls:
        if control.task in terms and (why := refusal(control)):
            return replace(contrast, verdict=contrast.verdict or why)
    return contrast


def refusal(control: Contrast) -> str:
    """Return the reason why a task's contrasts cannot be decided, or "" if its control succeeds.

    The control succeeds if the positive control is significantly better than the negative control.
    """
    if control.decided and control.difference is not None and control.difference.value > 0:
        return ""
    one, other = control.one[0], control.other[0]
    if control.verdict:
        return f"not known whether {one} gains over {other}: {control.verdict}"
    return f"cannot be decided here: {one} shows no gain over {other}"


def _contrast(
    plan: Plan, grid: Grid, of_task: str, sides: Sequence[Side], protocol: str | None
) -> Contrast:
    rows, values = {}, {}
    for name in {name for side in sides for name in side}:
        parsed = plan.term(name)
        runs = grid[parsed.task or of_task, parsed.label]
        metric, how = plan.metric, parsed.how or protocol
        records = [record for _, record in runs.values() if record is not None]
        if parsed.length is not None and records:
            metric = f"at {parsed.length / _trained(records[0].cell)}"
        rows[name] = _row(parsed.task or of_task, parsed.label, runs, metric, how)
        values[name] = _values(runs, metric, how)
    task = of_task or ", ".join(dict.fromkeys(rows[name].task for side in sides for name in side))
    one, other, *rest = sides
    than = (rest[0], rest[1]) if rest else None
    names = [name for side in sides for name in side]
    seeds = sorted(set.intersection(*(set(values[name]) for name in names)))
    if not seeds:
        nothing = "no paired seeds yet"
        return Contrast(task, one, other, [], None, [], None, None, None, nothing, than=than)
    if len({len(values[name][seed]) for name in names for seed in seeds}) > 1:
        raise StoreError(
            f"{task}: the training runs that a contrast compares must be tested on the same"
            " prompts, got different ones. Run the study again."
        )
    means = [
        {
            seed: (-1.0 if rows[side[0]].bits else 1.0)
            * torch.stack([values[name][seed] for name in side]).mean(0)
            for seed in seeds
        }
        for side in sides
    ]
    pairs = [
        [x[seed] - y[seed] for seed in seeds] for x, y in zip(means[::2], means[1::2], strict=True)
    ]
    apart = [x - y for x, y in zip(*pairs, strict=True)] if rest else pairs[0]
    by_seed = [difference.mean().item() for difference in apart]
    weak = [name for name in names if rows[name].undertrained]
    verdict = f"undertrained: {', '.join(weak)}" if weak else ""
    if not verdict and not statistics.may_rank(len(seeds)):
        verdict = f"{len(seeds)} seeds: no ranking claims"
    return Contrast(
        task,
        one,
        other,
        seeds,
        statistics.interval(apart),
        by_seed,
        statistics.sign_flip(by_seed),
        None,
        None if plan.margin is None else statistics.equivalence(apart, plan.margin),
        verdict,
        than=than,
    )


def _values(
    runs: Mapping[int, tuple[Cell, Record | None]], metric: str, protocol: str | None
) -> dict[int, Tensor]:
    """Return the metric of each seed, as a vector with one value per prompt."""
    values = {}
    for seed, (_, record) in runs.items():
        if record is not None and record.failure is None:
            vector = _vector(outcomes_graded(record, protocol), metric, _trained(record.cell))
            if vector is not None:
                values[seed] = vector
    return values


def _protocol(record: Record, protocol: str | None) -> str:
    """Return the name of the evaluation protocol by which a training run is graded.

    The name is "" if the record has no outcomes under this protocol.

    None means the first of `PROTOCOLS` that the record has.
    """
    held = {name for name, _ in record.outcomes}
    return next((name for name in ([protocol] if protocol else PROTOCOLS) if name in held), "")


def outcomes_graded(record: Record, protocol: str | None = None) -> dict[int, Outcome]:
    """Return a training run's outcomes under one evaluation protocol, by text length.

    None means the first of `PROTOCOLS` that the record has.
    """
    chosen = _protocol(record, protocol)
    return {n: outcome for (name, n), outcome in sorted(record.outcomes.items()) if name == chosen}


def _vector(outcomes: Mapping[int, Outcome], metric: str, trained: int) -> Tensor | None:
    """Compute one run's metric for each prompt; None if none of the metric's lengths was tested.

    Prompts of different lengths are different texts. Averaging those of the same number preserves
    the mean and its variance.
    """
    kept = [outcomes[n] for n in lengths_of(metric, trained, outcomes)]
    prompts = min((outcome.prompts for outcome in kept), default=0)
    return (
        torch.stack([outcome.values[:prompts].double() for outcome in kept]).mean(0)
        if kept
        else None
    )


def lengths_of(metric: str, trained: int, lengths: Iterable[int]) -> list[int]:
    """Select the tested lengths at which a metric is measured."""
    if metric == "area":
        return [n for n in lengths if trained < n <= 2 * trained]
    length = float(metric.removeprefix("at ")) * trained
    return [n for n in lengths if isclose(n, length)]


def _trained(cell: Cell) -> int:
    if cell.trained is None and is_own(cell.task):
        raise StoreError(
            f"the stored training runs of the task {brief(cell.task)} must have `trained`, the"
            " length of training texts, got none. The default of `trained` is in the code of the"
            " task, and posenc does not run this code when it reads results. Run the study again."
        )
    return cell.trained if cell.trained is not None else tasks.find(cell.task).trained


def _without_claim(contrast: Contrast, stamp: str) -> Contrast:
    return replace(contrast, verdict=contrast.verdict or stamp)
