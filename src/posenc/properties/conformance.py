"""Conformance tests: check that an encoding of your own keeps all promises of `promises.py`.

`conform(mine)` is to encodings what scikit-learn's `check_estimator` is to estimators. A broken
promise is tested again at smaller sizes, so that the reported example is small, and has a remedy
for the author.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from posenc.core.encoding import Encoding
from posenc.properties import user_code
from posenc.properties.card import Card
from posenc.properties.measures import Property, check
from posenc.properties.probe import Probe
from posenc.properties.promises import (
    IN_A_STUDY,
    PROMISES,
    REMEDIES,
    SHAPES,
    TRACED,
    Case,
    NotApplicable,
    Promise,
    Sizes,
    TensorPair,
    attended,
    long_texts,
    paths,
    shapes_differ,
)
from posenc.support import names
from posenc.support.arguments import brief
from posenc.support.notebook import table
from posenc.support.numbers import number

TOKENS, TEXTS = 10, 2
LONG = 131  # tokens, more than one tile of attention
FEWER = (*range(1, 10), 16, 17, 32, 64, 65, 128, 129)
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@dataclass(frozen=True)
class PromiseOutcome:
    """The test result of one promise.

    `defect` is the largest relative difference between two tensors that must be equal.
    """

    name: str
    holds: bool | None  # None: not applicable
    defect: float
    why: str
    smallest: Sizes | None = None  # the smallest tested sizes at which it fails
    remedy: str = ""  # a sentence on what to change; "" if nothing is broken

    @property
    def mark(self) -> str:
        return {True: "✓", False: "✗", None: "–"}[self.holds]

    @property
    def found(self) -> str:
        """The reason for the outcome; if a promise is broken, also the smallest failing sizes."""
        return f"{self.why.rstrip('.')} ({self.smallest})" if self.smallest else self.why

    def __str__(self) -> str:
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"{self.mark} {self.found.rstrip('.') if remedy else self.found}{remedy}"


class Conformance(list[PromiseOutcome]):
    """A list with the test result of each promise, printed as a table."""

    def __init__(self, name: str, outcomes: Iterable[PromiseOutcome]):
        super().__init__(outcomes)
        self.name = name

    @property
    def failed(self) -> list[PromiseOutcome]:
        return [outcome for outcome in self if outcome.holds is False]

    @property
    def refusal(self) -> str:
        """The error message about all broken promises, "" if there are none."""
        if not self.failed:
            return ""
        first, *more = self.failed
        others = f"; and {', '.join(f'`{other.name}`' for other in more)}" if more else ""
        remedy = f" {first.remedy}" if first.remedy else ""
        return f"{self.name} breaks the promise `{first.name}`: {first.found}{others}.{remedy}"

    def raise_if_failed(self) -> None:
        """Raise AssertionError with a table of the broken promises, if there are any."""
        __tracebackhide__ = True
        if self.failed:
            raise AssertionError(f"{self.refusal}\n\n{_lines(self.failed)}")

    def __str__(self) -> str:
        return _lines(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(one.name, one.mark, str(one)[2:]) for one in self]
        return table(["promise", "holds", "tried"], rows)


def conform(
    mine: Any,
    dim: int | None = None,
    heads: int | None = None,
    width: int | None = None,
    *,
    holds: Iterable[Property] = (),
    promises: Sequence[Promise] = PROMISES,
    dtypes: Sequence[torch.dtype] = DTYPES,
    compiled: bool = False,
    seed: int = 0,
) -> Conformance:
    """Test every promise on an encoding of your own, and return one outcome for each.

    - `mine`: a class, a function that makes an encoding, an instance, "my.py:Mine", or a card. A
      class or a function receives `dim`, `heads` and `width` if it has arguments of these names
    - `dim`: channels of a head; None: the size of the encoding, or 16
    - `heads`: query heads; None: the number of the encoding, or 4
    - `width`: channels of an embedding; None: dim · heads
    - `holds`: properties that it must have, as in `check`; a card declares its own
    - `promises`: the promises to test, all by default
    - `dtypes`: the first is used for all promises, the others only for the promise `dtypes`
    - `compiled`: True tests `torch.compile` and `torch.export` too, which takes seconds
    - `seed`: seed of the random inputs

    A broken promise raises no error here; use `conform(mine).raise_if_failed()` or
    `posenc.testing.conform` for that. A copy of an instance is tested, in which parameters that are
    all 0 get random values, because a table of zeros would hide errors.

    >>> from posenc import ALiBi
    >>> outcomes = conform(ALiBi(4))
    >>> outcomes.failed
    []
    >>> [outcome.name for outcome in outcomes][:3]
    ['paths', 'cache', 'packed texts']
    """
    with torch.random.fork_rng(devices=[]):
        case = case_of(mine, dim, heads, width, dtypes, seed)
        first = tried(runs, case)
        if first.holds is False:
            return Conformance(case.card.name, [replace(first, remedy=REMEDIES["runs"])])
        several = (*promises, *(TRACED if compiled else ()))
        outcomes = [outcome(promise, case) for promise in several]
        declared = {measure.__name__ for measure in (*holds, *case.card.holds)}
        if declared:
            found = check(case.encoding(), dim, heads, width, seed)
            outcomes += [
                PromiseOutcome(_words(name), finding.holds is True, finding.defect, finding.why)
                for name, finding in found.items()
                if name in declared
            ]
    return Conformance(case.card.name, outcomes)


def refuse_broken(encoding: Encoding) -> None:
    """Raise ValueError if the encoding breaks a promise on which training depends."""
    conformance = conform(encoding, promises=IN_A_STUDY, dtypes=[torch.float32])
    if conformance.failed:
        raise ValueError(conformance.refusal)


def _card_of(mine: Any) -> Card:
    if isinstance(mine, Encoding | Card | str):
        return names.catalog().find(mine)
    if not callable(mine):
        raise TypeError(
            "`mine` must be an encoding, its class, or its name, `my_module.py:Mine`, got"
            f" {brief(mine)}. Derive a class from `posenc.Encoding`."
        )
    name = getattr(mine, "__name__", type(mine).__name__)
    return Card(name, None, user_code.Maker(mine, name), frozenset())


def case_of(
    mine: Any,
    dim: int | None = None,
    heads: int | None = None,
    width: int | None = None,
    dtypes: Sequence[torch.dtype] = DTYPES,
    seed: int = 0,
) -> Case:
    """Return a test case for an encoding, in the first dtype of `dtypes`, or in float32.

    The dtype is float32 if a layer runs in float32 but not in the first dtype.
    """
    card, constructor_dim = _card_of(mine), dim or 16
    torch.manual_seed(seed)
    first = card.make(constructor_dim, heads or 4)
    probe = Probe(first, dim, heads, width, seed)
    if probe.limit < 2:
        raise ValueError(
            f"`mine` must accept at least two positions, got {card.name}, which accepts only one"
            " position."
        )
    case = Case(
        card=card,
        constructor_dim=constructor_dim,
        dim=probe.dim,
        sizes=Sizes(TEXTS, min(TOKENS, probe.limit // 2), probe.heads),
        dtype=dtypes[0],
        dtypes=tuple(dtypes),
        limit=probe.limit,
        axes=first.axes,
        causal=first.causal,
        seed=seed,
    )
    in_32_bits = replace(case, dtype=torch.float32)
    fails_as_it_is = tried(runs, case).holds is False
    return in_32_bits if fails_as_it_is and tried(runs, in_32_bits).holds else case


def runs(case: Case) -> Iterator[TensorPair]:
    """A layer with the encoding runs and returns finite numbers."""
    shape = case.sizes.batch, case.sizes.heads, case.sizes.tokens, case.dim
    layer, x = case.layer(), case.x()
    for path in ("auto", "reference"):
        out = attended(layer, x, case.line(), case.mask, path)
        yield TensorPair(f"finite numbers, path {path!r}", out.isfinite(), torch.ones(shape).bool())


def outcome(promise: Promise, case: Case) -> PromiseOutcome:
    """Test a promise on an encoding; after a failure, find the smallest sizes that also fail."""
    cases = [case]
    if promise is paths:
        cases.append(replace(case, sizes=replace(case.sizes, tokens=1)))
        if case.limit > LONG + 1:
            cases.append(replace(case, sizes=replace(case.sizes, batch=1, tokens=LONG)))
    outcomes = [tried(promise, one) for one in cases]
    for one, came_of_it in zip(cases, outcomes, strict=True):
        if came_of_it.holds is False:
            remedy = SHAPES if shapes_differ(case) else REMEDIES.get(promise.__name__, "")
            # `long_texts` has sizes of its own
            if promise is not long_texts:
                came_of_it = _smallest(promise, one, came_of_it)
            return replace(came_of_it, remedy=remedy)
    return outcomes[0]


def _smallest(promise: Promise, case: Case, broken: PromiseOutcome) -> PromiseOutcome:
    for size in ("batch", "heads", "tokens"):
        for fewer in [n for n in FEWER if n < getattr(case.sizes, size)]:
            smaller = replace(case, sizes=replace(case.sizes, **{size: fewer}))
            came_of_it = tried(promise, smaller) if _can_be_made(smaller) else None
            if came_of_it is not None and came_of_it.holds is False:
                case, broken = smaller, came_of_it
                break
    return replace(broken, smallest=case.sizes)


def _can_be_made(case: Case) -> bool:
    try:
        case.layer()
    except Exception:
        # Code of the user may raise anything.
        return False
    return True


def tried(promise: Promise, case: Case) -> PromiseOutcome:
    """Test a promise at one batch size, number of heads and text length."""
    name, largest, count = _words(promise.__name__), 0.0, 0
    usual = TOLERANCE.get(case.dtype, 16 * torch.finfo(case.dtype).eps)
    torch.manual_seed(case.seed)
    try:
        for pair in promise(case):
            defect = _defect(pair)
            if not defect <= (usual if pair.tolerance is None else pair.tolerance):
                return PromiseOutcome(name, False, defect, f"{pair.what}: {_witness(pair)}")
            largest, count = max(largest, defect), count + 1
    except NotApplicable as reason:
        return PromiseOutcome(name, None, float("nan"), f"not applicable: {reason}")
    except Exception as error:
        # Code of the user may raise anything.
        where = user_code.failure(error, [case.card]) or f"{type(error).__name__}: {error}"
        return PromiseOutcome(name, False, float("inf"), " ".join(where.split()))
    if not count:
        few = "not applicable to this small number of tokens or heads"
        return PromiseOutcome(name, None, float("nan"), few)
    apart = f"differences up to {number(largest, 2)}" if largest else "no difference"
    return PromiseOutcome(name, True, largest, f"{count} comparison{'s' * (count > 1)}, {apart}")


def _defect(pair: TensorPair) -> float:
    """Return the largest difference of two tensors, relative to the largest expected number."""
    if _incomparable(pair):
        return float("inf")
    if not pair.actual.numel():
        return 0.0
    unit = max(pair.unit, pair.expected.detach().double().abs().max().item()) or 1.0
    return _apart(pair).max().item() / unit


def _incomparable(pair: TensorPair) -> str:
    """Return the reason why the two tensors cannot be compared, or ""."""
    if not isinstance(pair.actual, torch.Tensor):
        return f"{brief(pair.actual)} instead of a tensor"
    if pair.actual.shape != pair.expected.shape:
        return f"shape {tuple(pair.actual.shape)} instead of {tuple(pair.expected.shape)}"
    if pair.actual.dtype != pair.expected.dtype:
        return f"{pair.actual.dtype} instead of {pair.expected.dtype}"
    return ""


def _apart(pair: TensorPair) -> torch.Tensor:
    return (pair.actual.detach().double() - pair.expected.detach().double()).abs()


def _witness(pair: TensorPair) -> str:
    """Format the two numbers that differ most, with their index and enough digits to differ."""
    if unlike := _incomparable(pair):
        return unlike
    place = torch.unravel_index(_apart(pair).argmax(), pair.actual.shape)
    values = [x[place].item() for x in (pair.actual, pair.expected)]
    formatted = [[number(value, digits) for value in values] for digits in (3, 6, 17)]
    actual, expected = next((two for two in formatted if two[0] != two[1]), formatted[-1])
    index = [int(i) for i in place]
    axes = zip(pair.axes.split(), index, strict=False)
    where = ", ".join([f"{axis} {i}" for axis, i in axes] or map(str, index))
    return f"{actual} instead of {expected}{f' at {where}' if where else ''}"


def _words(name: str) -> str:
    return name.strip("_").replace("_", " ")


def _lines(outcomes: Iterable[PromiseOutcome]) -> str:
    return "\n".join(f"{outcome.name:22} {outcome}" for outcome in outcomes)
