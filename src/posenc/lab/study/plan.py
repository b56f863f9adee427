"""The plan of a study: encodings, tasks, training, metric and contrasts, registered in advance.

    hypothesis = "NoPE, T5 and ALiBi copy texts longer than those of training; RoPE does not."
    tasks = ["copy", "reverse"]
    encodings = ["nope", "rope", "alibi", { name = "slow", encoding = "rope", theta = [0.1, 0.01] }]
    profile = "cpu"                      # or a table: { base = "cpu", steps = 2000 }
    seeds = 6
    metric = "area"                      # mean over L < n ≤ 2L; or "at 1.2", at 1.2 L
    data_seed = 1                        # the same order of texts for all seeds; default: by seed
    rates = [1e-3, 2e-3, 4e-3]           # learning rates, of which each row uses the best one at
                                         # n ≤ L, over `rate_seeds` further seeds
    told = false                         # T5, FIRE, DeBERTa and xPos keep their default lengths
    precision = "bfloat16"               # precision of the products of linear maps, in training
    # { name = "stretched", encoding = "rope", extend = "yarn 2 after 100" } is tested as extended
    contrast = [["nope", "rope"], [["nope", "alibi"], ["rope", "slow"]]]
    # ["alibi", "rope cropped"]: "cropped" reads only the last L tokens, "windowed" attends L back
    contrast = [["rope at 17", "rope at 18"]]       # the same row at two tested lengths
    # ["copy-unique: rope", "copy-unique: nope", "copy: rope", "copy: nope"] is the first difference
    # minus the second, across tasks
    margin = 0.05                        # share of right answers, or bits; a smaller difference
                                         # counts as equal
    positive = "taught"                  # positive control: this row must gain
    negative = "rope cropped"            # negative control: this row cannot gain
    withdraw = "RoPE copies less than half of the texts at 1.2 L at the second rate."
    pilots = ["nope, one seed, 2,000 steps: 54 % at 1.2 L"]  # results known before

A row may be trained differently from the others: at another rate, with `profile = { rate = 1e-3 }`,
or on longer texts, with `trained = 20`. It is measured from L to 2 L as all others are. A plan is
evidence only if it names both controls, has one encoding at two rates or sizes, and states the
result that would withdraw its claim; others run as pilots.

The digest of a plan is that of `Plan.text`, a canonical spelling of its content. The store contains
the digest before the first cell is trained.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from itertools import chain
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from posenc.catalog import find
from posenc.lab.study import safe_files, statistics, tasks
from posenc.lab.study.cell import (
    CONTROLS,
    DEEPEST,
    EXTEND,
    LONGEST,
    MOST,
    PROFILES,
    Cell,
    Profile,
    too_deep,
)  # fmt: skip
from posenc.lab.study.context_extension import check_encoding
from posenc.properties import user_code
from posenc.support.arguments import PRECISIONS, brief, memory

METRIC = re.compile(r"area|at (\d+(?:\.\d+)?)")
POSITIONS = re.compile(r"plain|random [1-9]\d{0,8}")
MOST_SEEDS = 10_000  # greatest seed of an outcome; greater seeds belong to trials of rates
MOST_NAMES = 1_000  # names in a list
MOST_BYTES = 2**20  # bytes of the file
MOST_CELLS = 100_000
MOST_RATE = 1.0  # learning rate of AdamW; no transformer has been trained with a greater one

Rates = Mapping[tuple[str, str], float]  # learning rates by task and label
Side = tuple[str, ...]  # labels of one side of a contrast; several are averaged
OF_A_TEXT = tuple(name for name in tasks.MADE_OF if name != "images")
BASELINES = ("cropped", "windowed")  # protocols that limit how far back a model reads


class PlanError(ValueError):
    """Raised for an invalid plan; the message has the file, the key, the fault and the remedy."""


@dataclass(frozen=True)
class PlanRow:
    """One row of the results table: an encoding with its options and its training."""

    name: str
    encoding: str
    options: Mapping[str, Any]
    positions: str
    control: str
    extend: str
    profile: Mapping[str, Any] = field(default_factory=dict)  # settings other than the plan's
    trained: int | None = None  # length of its longest texts; None: the plan's

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as a dict, without `profile` and `trained` if the row does not set them."""
        written = asdict(self)
        return {k: x for k, x in written.items() if x or k not in ("profile", "trained")}


class ContrastTerm(NamedTuple):
    """One result that a contrast compares: an encoding on a task, under a protocol, at a length."""

    task: str  # empty: each task of the plan
    label: str
    how: str  # "cropped", "windowed", or empty: the model reads all of a text
    length: int | None  # None: measured by the plan's metric


@dataclass(frozen=True)
class Plan:
    """The settings of a study, made by `Plan.read` or `Plan.of`, which check them."""

    tasks: tuple[str, ...]
    encodings: tuple[PlanRow, ...]
    profile: Profile
    hypothesis: str = ""
    contrast: tuple[tuple[Side, ...], ...] = ()  # two sides, or four: (1 − 2) − (3 − 4)
    metric: str = "area"
    seeds: int = statistics.RANKING
    trained: int | None = None  # greatest trained length; None: the task's
    tested: tuple[int, ...] = ()  # tested lengths; empty: the task's
    texts: str = ""  # text file for tasks made of a text; empty: the packaged novel
    images: str = ""  # file for the task `images`; empty: the digits of scikit-learn
    data_seed: int | None = None  # seed of the order of texts; None: that of each run
    precision: str = "float32"  # precision of the products of linear maps, in training
    margin: float | None = None  # smaller differences count as equal; None: equality is not tested
    pilots: tuple[str, ...] = ()  # results seen before the plan was written, a sentence each
    rates: tuple[float, ...] = ()  # candidate learning rates of each row; empty: the profile's rate
    rate_seeds: int = 2  # trials of each candidate rate
    told: bool = True  # encodings with such settings receive the mask and the trained length
    positive: str = ""  # positive control, a row that must gain over `negative`
    negative: str = ""  # negative control, a row that cannot gain
    withdraw: str = ""  # result that would withdraw the claim

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan from a TOML file. Raises PlanError for an invalid one."""
        try:
            content = tomllib.loads(safe_files.read_text(path, MOST_BYTES))
        except OSError as error:
            raise PlanError(f"{path} cannot be read: {error.strerror}.") from None
        except safe_files.NotRegular as error:
            raise PlanError(str(error)) from None
        except ValueError as error:
            # Invalid TOML or UTF-8
            raise PlanError(f"{path} must be a TOML file: {error}.") from None
        except RecursionError:
            raise _nested(path) from None
        return cls.of(content, path.name)

    @classmethod
    def of(cls, content: Mapping[str, Any], source: str = "the plan") -> "Plan":
        """Make a plan from the parsed content of a TOML file. Raises PlanError if it is invalid."""
        if too_deep(content):
            raise _nested(source)
        return _PlanReader(source).plan(content)

    @classmethod
    def stored(cls, text: str) -> "Plan":
        """Make a plan from the TOML text in a study's database.

        Old stores lack the setting `told`, which is false for them.
        """
        return cls.of({"told": False} | tomllib.loads(text), "the store's plan")

    @cached_property
    def text(self) -> str:
        """The plan as canonical TOML with all defaults: the same text for equivalent plans."""
        content = {
            "hypothesis": self.hypothesis,
            "tasks": list(self.tasks),
            "profile": asdict(self.profile),
            "seeds": self.seeds,
            "metric": self.metric,
            "contrast": [[list(side) for side in sides] for sides in self.contrast],
            **({} if self.trained is None else {"trained": self.trained}),
            **({"tested": list(self.tested)} if self.tested else {}),
            **({"text": self.texts} if self.texts else {}),
            **({"images": self.images} if self.images else {}),
            **({} if self.data_seed is None else {"data_seed": self.data_seed}),
            **({} if self.precision == "float32" else {"precision": self.precision}),
            **({} if self.margin is None else {"margin": self.margin}),
            **({"pilots": list(self.pilots)} if self.pilots else {}),
            **({"rates": list(self.rates), "rate_seeds": self.rate_seeds} if self.rates else {}),
            **({"told": True} if self.told else {}),
            **{key: value for key in CONTROL_KEYS if (value := getattr(self, key))},
        }
        lines = [f"{key} = {_toml(value)}" for key, value in content.items()]
        listed = [f"    {_toml(row.settings)}," for row in self.encodings]
        return "\n".join([*lines, "encodings = [", *listed, "]", ""])

    @property
    def digest(self) -> str:
        """The SHA-256 of the plan's canonical TOML, which identifies the plan."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(encoding.name for encoding in self.encodings)

    def term(self, name: str) -> ContrastTerm:
        """Parse a contrast term of this plan, such as "copy: rope cropped at 12"."""
        return read_term(name, self.tasks, self.labels)

    def cells(self, rates: Rates = MappingProxyType({})) -> list[Cell]:
        """List the training runs by seed: all runs with seed 1, then all with seed 2, and so on.

        An interrupted study therefore has nearly the same number of seeds for each encoding.

        - `rates`: chosen learning rates by task and label
        """
        return [cell for seed in range(1, self.seeds + 1) for cell in self.of_seed(seed, rates)]

    def of_seed(self, seed: int, rates: Rates = MappingProxyType({})) -> list[Cell]:
        return [
            Cell(
                task, row.encoding, seed, row.name, dict(row.options),
                replace(profile, rate=rates.get((task, row.name), profile.rate)),
                row.trained or self.trained, self.tested, row.positions, row.control, row.extend,
                self.data_seed,
                precision=self.precision, told=1 if self.told else None,
            )
            for task in self.tasks
            for row in self.encodings
            for profile in [self.profile_of(row)]
        ]  # fmt: skip

    def profile_of(self, row: PlanRow) -> Profile:
        """Return the model and training settings of a row, which may override the plan's."""
        return replace(self.profile, **row.profile)

    def trials(self) -> list[Cell]:
        """List the trial runs, whose outcomes decide the learning rates.

        Their seeds differ from those of all other runs.
        """
        return [
            cell
            for seed in range(MOST_SEEDS + 1, MOST_SEEDS + 1 + self.rate_seeds)
            for rate in self.rates
            for cell in self.of_seed(
                seed, {(task, name): rate for task in self.tasks for name in self.labels}
            )
        ]

    @property
    def code(self) -> list[str]:
        """The tasks and encodings of the plan that are user code, such as "my_module.py:Mine"."""
        named = {*self.tasks, *(row.encoding for row in self.encodings)}
        return sorted(filter(user_code.is_own, named))

    def source(self, task: str) -> str:
        """Return the path of a task's text or image file.

        The path is "" if the task has no such file, or if the package contains the file.
        """
        return self.images if task == "images" else self.texts if task in tasks.MADE_OF else ""

    def check_settings(self) -> None:
        """Raise PlanError if a learning rate is too high, or a RoPE's `theta` has the wrong length.

        Called before training only, so that a plan in a store can always be read.
        """
        for rate in self.rates or [self.profile_of(row).rate for row in self.encodings]:
            if rate > MOST_RATE:
                raise PlanError(
                    f"`rate` must be at most {MOST_RATE:g}, a learning rate of AdamW, got"
                    f" {rate:g}. Write a rate near 1e-3."
                )
        for row in self.encodings:
            profile = self.profile_of(row)
            pairs = profile.width // profile.heads // 2
            theta = row.options.get("theta")
            if user_code.is_own(row.encoding) or find(row.encoding).slug != "rope":
                continue
            if isinstance(theta, list) and len(theta) != pairs:
                raise PlanError(
                    f"encodings: {row.name}: `theta` must have a number for each of the {pairs}"
                    f" rotary pairs of a head, got {len(theta)} numbers. Write 0 for a pair without"
                    " rotation."
                )

    def check_margin(self, task: str, in_bits: bool) -> None:
        """Raise PlanError if the equivalence margin is too large for a task scored by accuracy."""
        if self.margin is not None and self.margin >= 1 and not in_bits:
            raise PlanError(
                f"`margin` must be below 1 for {task}, whose outcomes are shares of right answers,"
                f" got {self.margin:g}. Write 0.05 for five percentage points."
            )

    def notes(self) -> list[str]:
        """List the reasons why results of this plan are not evidence, such as a missing control.

        Each reason names the key of the plan and the remedy.
        """
        notes, tests = [], self.tests
        for key, what in CONTROL_KEYS.items():
            if not getattr(self, key):
                notes.append(f'{key}: a plan must name {what}, got none. Write `{key} = "…"`.')
        alike: dict[str, set[tuple[Any, ...]]] = {}
        for row in self.encodings:
            profile = self.profile_of(row)
            kind = _toml(replace(row, name="", profile={}).settings)
            sizes = profile.rate, profile.width, profile.heads, profile.layers
            alike.setdefault(kind, set()).add(sizes)
        if max(map(len, alike.values())) < 2:
            notes.append(
                "encodings: one encoding must have two learning rates or two sizes, got one of"
                ' each. Add a row such as { name = "rope 1e-3", encoding = "rope", profile ='
                " { rate = 1e-3 } }."
            )
        if tests and self.seeds < (needed := statistics.seeds_for(tests)):
            several = "s" * (tests > 1)
            notes.append(
                f"seeds: {tests} contrast{several} must have {needed} seeds to be decided, got"
                f" {self.seeds}. Plan {needed} seeds{', or fewer contrasts' * (tests > 1)}."
            )
        profiles = [self.profile_of(row) for row in self.encodings]
        for steps, warmup in sorted({(one.steps, one.warmup) for one in profiles}):
            if steps <= warmup:
                notes.append(
                    f"profile: `steps` must be more than `warmup`, {warmup}, got {steps}. Train"
                    " longer, so that the rate is reached."
                )
        return notes

    @property
    def tests(self) -> int:
        """The number of statistical tests that the plan's contrasts require.

        A contrast that names a task is one test; any other contrast is one test for each task.
        """
        return sum(1 if self.term(sides[0][0]).task else len(self.tasks) for sides in self.contrast)

    def check_evidence(self) -> None:
        """Raise PlanError, with all reasons, if the plan's results would not be evidence.

        Called for new studies only, so that a registered plan can always be continued.
        """
        if notes := self.notes():
            remedy = "Or run the plan with --pilot, which marks its results as not evidence."
            raise PlanError(" ".join([*notes, remedy]))

    def differences(self, other: "Plan") -> str:
        """Describe how this plan differs from `other`, such as "`seeds` is 6 there and 10 here"."""
        there, here = (tomllib.loads(plan.text) for plan in (other, self))
        return ", ".join(
            f"`{key}` is {brief(there.get(key))} there and {brief(here.get(key))} here"
            for key in sorted({*there, *here})
            if there.get(key) != here.get(key)
        )


CONTROL_KEYS = {
    "positive": "a positive control, a row that must gain beyond L",
    "negative": "a negative control, a row that cannot gain",
    "withdraw": "the result that would withdraw its claim",
}
KEYS = (
    *CONTROL_KEYS, "hypothesis", "tasks", "encodings", "profile", "seeds", "metric",
    "contrast", "positions", "control", "trained", "tested", "text", "images", "data_seed",
    "precision", "margin", "pilots", "rates", "rate_seeds", "told",
)  # fmt: skip
ROW = ("name", "encoding", "options", "positions", "control", "extend", "profile", "trained")
TERM = re.compile(r"(.+?)(?: (cropped|windowed))?(?: at ([1-9]\d{0,8}))?")


def read_term(name: str, tasks: Sequence[str], labels: Sequence[str]) -> ContrastTerm:
    """Parse a contrast term, such as "copy: rope cropped at 12".

    A text that is the label of a row is not parsed any further.
    """
    task, _, rest = name.partition(": ")
    task, rest = (task, rest) if task in tasks and rest else ("", name)
    found = TERM.fullmatch(rest)
    if rest in labels or found is None:
        return ContrastTerm(task, rest, "", None)
    label, how, length = found.groups()
    return ContrastTerm(task, label, how or "", int(length) if length else None)


class _PlanReader:
    """A validating parser of a plan's TOML content. Its errors name the file and the key."""

    def __init__(self, source: str) -> None:
        self.source = source

    def plan(self, content: Mapping[str, Any]) -> Plan:
        for key in content:
            if key not in KEYS:
                self._unknown("", key, KEYS)
        for key in ("tasks", "encodings"):
            if key not in content:
                profile = content.get("profile")
                if isinstance(profile, Mapping) and key in profile:
                    self._wrong(key, "must be above [profile], got it below. Move it up")
                self._wrong(key, "must be in the plan, got none. Add a list of names")
        profile = self._profile(content.get("profile", "smoke"))
        encodings = self._encodings(content, profile)
        seeds = self._whole("seeds", content.get("seeds", statistics.RANKING), most=MOST_SEEDS)
        names = self._tasks(content["tasks"])
        if (cells := len(names) * len(encodings) * seeds) > MOST_CELLS:
            self._wrong(
                "seeds",
                f"must make at most {MOST_CELLS:,} cells with these tasks and encodings, got"
                f" {cells:,}. Plan fewer",
            )
        labels = [encoding.name for encoding in encodings]
        if "trained" not in content and any(row.trained for row in encodings):
            self._wrong(
                "trained",
                "must be in a plan if a row has a trained length, got none. Add the length L",
            )
        if "rates" in content and any("rate" in row.profile for row in encodings):
            self._rate_twice()
        return Plan(
            tuple(names),
            tuple(encodings),
            profile,
            self._text("hypothesis", content.get("hypothesis", "")),
            tuple(self._contrast(content.get("contrast", []), names, labels)),
            self._metric(content.get("metric", "area")),
            seeds,
            self._length("trained", content["trained"]) if "trained" in content else None,
            self._tested(content.get("tested", [])),
            self._file("text", content, names),
            self._file("images", content, names),
            self._whole("data_seed", content["data_seed"], 0) if "data_seed" in content else None,
            self._precision(content.get("precision", "float32")),
            self._number("margin", content["margin"]) if "margin" in content else None,
            tuple(
                self._text("pilots", one) for one in self._list("pilots", content.get("pilots", []))
            ),
            self._rates(content),
            self._whole("rate_seeds", content.get("rate_seeds", 2), most=100),
            self._flag("told", content.get("told", True)),
            self._control_row("positive", content, labels),
            self._control_row("negative", content, labels),
            self._text("withdraw", content.get("withdraw", ""), empty=True),
        )

    def _control_row(self, key: str, content: Mapping[str, Any], labels: Sequence[str]) -> str:
        name = self._text(key, content.get(key, ""), empty=True)
        if name and (read_term(name, (), labels).label not in labels or " at " in name):
            self._unknown(key, name, labels)
        if name and name == content.get("negative" if key == "positive" else "positive"):
            self._wrong(key, f"must differ from the other control, got {brief(name)} for both")
        return name

    def _tested(self, value: Any) -> tuple[int, ...]:
        lengths = [self._length("tested", n) for n in self._list("tested", value)]
        twice = [n for place, n in enumerate(lengths) if n in lengths[:place]]
        if twice:
            self._wrong("tested", f"must differ, got {twice[0]} twice. Leave one of them out")
        return tuple(lengths)

    def _file(self, key: str, content: Mapping[str, Any], names: Sequence[str]) -> str:
        if key not in content:
            return ""
        reads = lambda name: (name == "images") if key == "images" else name in OF_A_TEXT  # noqa: E731
        if not any(map(reads, names)):
            self._wrong(
                key,
                f"must be left out if no task is made of this file, got tasks {', '.join(names)}",
            )
        return self._text(key, content[key])

    def _rates(self, content: Mapping[str, Any]) -> tuple[float, ...]:
        rates = [
            self._number("rates", rate) for rate in self._list("rates", content.get("rates", []))
        ]
        if rates and (len(rates) < 3 or len({*rates}) < len(rates)):
            self._wrong(
                "rates",
                "must be at least three different rates, so that the best one can be between"
                f" others, got {brief(content['rates'])}",
            )
        if "rate_seeds" in content and not rates:
            self._wrong(
                "rate_seeds",
                "must be left out without `rates`, got no rates. Add three rates, or leave it out",
            )
        profile = content.get("profile")
        if rates and isinstance(profile, Mapping) and "rate" in profile:
            # The plan in a store has every setting of its profile, also the default rate
            if profile["rate"] != PROFILES["smoke"].rate:
                self._rate_twice()
        return tuple(sorted(rates))

    def _rate_twice(self) -> NoReturn:
        self._wrong(
            "rates", "must not be combined with `rate`, got both. Leave `rate` out of the profile"
        )

    def _flag(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            self._wrong(key, f"must be true or false, got {brief(value)}")
        return value

    def _precision(self, value: Any) -> str:
        if value not in PRECISIONS:
            known = " or ".join(map(json.dumps, PRECISIONS))
            self._wrong("precision", f"must be {known}, got {brief(value)}")
        return value

    def _tasks(self, value: Any) -> list[str]:
        names = [self._text("tasks", name) for name in self._list("tasks", value, least=1)]
        for name in names:
            # Code of the user and tasks made of files are checked before training, by `resolved`
            if not user_code.is_own(name) and name not in tasks.MADE_OF:
                try:
                    tasks.find(name)
                except LookupError as error:
                    self._wrong("tasks", str(error.args[0]))
        return self._distinct("tasks", names)

    def _encodings(self, content: Mapping[str, Any], profile: Profile) -> list[PlanRow]:
        rest = {key: content[key] for key in ("positions", "control") if key in content}
        encodings = []
        for value in self._list("encodings", content["encodings"], least=1):
            row = {"name": value, "encoding": value} if isinstance(value, str) else value
            if not isinstance(row, dict):
                self._wrong("encodings", f"must be names or tables, got {brief(value)}")
            named = self._text("encodings", row.get("encoding", row.get("name")))
            # `{ encoding = "fire", hidden = 8 }` is `options = { hidden = 8 }`
            options = {key: option for key, option in row.items() if key not in ROW}
            options |= self._table("encodings: options", row.get("options", {}))
            settings = rest | row
            positions = self._text("positions", settings.get("positions", "plain"))
            if not POSITIONS.fullmatch(positions):
                self._wrong(
                    "positions", f'must be "plain" or "random 2048", got {brief(positions)}'
                )
            control = self._text("control", settings.get("control", ""), empty=True)
            if control not in CONTROLS:
                self._unknown("control", control, CONTROLS[1:])
            extend = self._text("extend", row.get("extend", ""), empty=True)
            if extend and not EXTEND.fullmatch(extend):
                self._wrong(
                    "extend", f'must be "pi 2", or "yarn 4 after 100" steps, got {brief(extend)}'
                )
            own = self._table("encodings: profile", row.get("profile", {}))
            if "base" in own:
                self._unknown("encodings: profile", "base", [*asdict(profile)])
            sizes = self._profile({**asdict(profile), **own}) if own else profile
            trained = self._length("encodings: trained", row["trained"]) if "trained" in row else 0
            self._encoding(named, options, sizes, extend)
            label = self._text("encodings", row.get("name", named))
            own = {key: getattr(sizes, key) for key in own}
            encodings.append(
                PlanRow(label, named, options, positions, control, extend, own, trained or None)
            )
        labels = self._distinct("encodings", [encoding.name for encoding in encodings])
        for label in labels:
            if any(label == f"{other} {how}" for other in labels for how in BASELINES):
                self._wrong(
                    "encodings",
                    'must not be named as the protocol of another row, "NAME cropped" or "NAME'
                    f' windowed", got {brief(label)}. Rename it',
                )
        first: dict[str, str] = {}
        for encoding in encodings:
            slug = encoding.encoding
            if not user_code.is_own(slug):
                slug = find(slug).slug  # of "RoPE", "rope"
            alike = replace(encoding, name="", encoding=slug).settings
            earlier = first.setdefault(_toml(alike), encoding.name)
            if earlier != encoding.name:
                self._wrong(
                    "encodings",
                    f"must differ, got the same settings in {earlier} and {encoding.name}. Leave"
                    " one of them out",
                )
        return encodings

    def _encoding(
        self, name: str, options: Mapping[str, Any], profile: Profile, extend: str
    ) -> None:
        """Check an encoding's options by constructing it, unless it is the user's own code."""
        for key, option in options.items():
            self._option(f"encodings: {name}", key, option)
        try:
            if not user_code.is_own(name):
                check_encoding(Cell("", name, 0, "", options, profile, extend=extend))
        except (LookupError, TypeError, ValueError) as error:
            self._wrong("encodings", f"{name}: {' '.join(str(error.args[0]).split())}")

    def _option(self, where: str, key: str, value: Any) -> None:
        """Raise PlanError for an option of an encoding that JSON cannot represent."""
        if isinstance(value, Mapping | list):
            for part in value.values() if isinstance(value, Mapping) else value:
                self._option(where, key, part)
        elif not isinstance(value, str | int | float) or value in (inf, -inf) or value != value:
            self._wrong(
                where,
                f"`{key}` must be made of text, finite numbers, true and false, got {brief(value)}",
            )

    def _profile(self, value: Any) -> Profile:
        if isinstance(value, str):
            if value not in PROFILES:
                self._unknown("profile", value, tuple(PROFILES))
            return PROFILES[value]
        table = dict(self._table("profile", value))
        base = asdict(self._profile(table.pop("base", "smoke")))
        for key, setting in table.items():
            if key not in base:
                self._unknown("profile", key, (*base, "base"))
            if key == "rate":
                table[key] = self._number("profile: rate", setting)
            else:
                least = 0 if key == "warmup" else 1
                table[key] = self._whole(f"profile: {key}", setting, least, MOST[key])
        profile = Profile(**base | table)
        if (needed := 4 * profile.weights) > memory():
            self._wrong(
                "profile",
                f"`width` and `layers` must be so small that the weights fit into"
                f" {memory() / 2**30:,.0f} GiB of memory, got {needed / 2**30:,.0f} GiB of weights."
                " Make the model smaller",
            )
        if profile.width % profile.heads:
            self._wrong(
                "profile",
                f"`width` must be a multiple of `heads`, got {profile.width} and {profile.heads}",
            )
        return profile

    def _contrast(
        self, value: Any, names: Sequence[str], labels: Sequence[str]
    ) -> list[tuple[Side, ...]]:
        contrasts: list[tuple[Side, ...]] = []
        for given in self._list("contrast", value):
            if not isinstance(given, list) or len(given) not in (2, 4):
                self._wrong(
                    "contrast",
                    'must be pairs such as ["nope", "rope"], or two pairs in one list, got'
                    f" {brief(given)}",
                )
            sides = tuple(self._side(side, names, labels) for side in given)
            for one, other in zip(sides[::2], sides[1::2], strict=True):
                if set(one) & set(other):
                    self._wrong("contrast", f"must have different sides, got {brief(given)}")
            if len({bool(read_term(name, names, labels).task) for x in sides for name in x}) > 1:
                self._wrong(
                    "contrast",
                    f"must name a task on all sides or on none, got {brief(given)}",
                )
            same = {frozenset(map(frozenset, one)) for one in contrasts}
            if frozenset(map(frozenset, sides)) in same:
                self._wrong(
                    "contrast",
                    f"must differ, got {' and '.join(chain.from_iterable(sides))} twice. Leave one"
                    " out, because it would count twice",
                )
            contrasts.append(sides)
        return contrasts

    def _side(self, side: Any, tasks: Sequence[str], labels: Sequence[str]) -> Side:
        names = [side] if isinstance(side, str) else self._list("contrast", side, least=1)
        for name in names:
            if read_term(self._text("contrast", name), tasks, labels).label not in labels:
                self._unknown("contrast", name, labels)
        return tuple(self._distinct("contrast", names))

    def _metric(self, value: Any) -> str:
        metric = self._text("metric", value)
        if not METRIC.fullmatch(metric):
            self._wrong("metric", f'must be "area" or "at 1.2", got {brief(metric)}')
        return metric

    def _text(self, key: str, value: Any, empty: bool = False) -> str:
        if not isinstance(value, str) or not (value or empty or key == "hypothesis"):
            self._wrong(key, f"must be text in quotes, got {brief(value)}")
        if not value.isprintable() and key != "hypothesis":
            self._wrong(key, f"must be printable text, got {brief(value)}")
        return value

    def _table(self, key: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._wrong(key, f"must be a table, got {brief(value)}")
        return value

    def _list(self, key: str, value: Any, least: int = 0) -> list[Any]:
        if not isinstance(value, list) or len(value) < least:
            got = "an empty one" if value == [] else brief(value)
            self._wrong(key, f"must be a list{' of at least one' * bool(least)}, got {got}")
        if len(value) > MOST_NAMES:
            self._wrong(key, f"must be a list of at most {MOST_NAMES:,}, got {len(value):,}")
        return value

    def _whole(self, key: str, value: Any, least: int = 1, most: int = 2**31) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._wrong(key, f"must be a whole number from {least} to {most:,}, got {brief(value)}")
        return value

    def _length(self, key: str, value: Any) -> int:
        return self._whole(key, value, most=LONGEST)

    def _number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            self._wrong(key, f"must be a number above 0, got {brief(value)}")
        return float(value)

    def _distinct(self, key: str, names: list[str]) -> list[str]:
        for name in names:
            if names.count(name) > 1:
                self._wrong(
                    key,
                    f"must differ, got {brief(name)} twice. Give each its own `name`, or leave one"
                    " out",
                )
        return names

    def _unknown(self, key: str, name: Any, known: Sequence[str]) -> NoReturn:
        near = get_close_matches(str(name), known, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
        self._wrong(key, f"{brief(name)} is not known: {hint}")

    def _wrong(self, key: str, fault: str) -> NoReturn:
        where = ": ".join(part for part in (self.source, key) if part)
        raise PlanError(f"{where}: {fault}{'' if fault.endswith(('?', '.')) else '.'}")


def _nested(source: object) -> PlanError:
    return PlanError(f"{source}: lists and tables must be nested at most {DEEPEST} deep.")


def _toml(value: Any) -> str:
    """Return a value as one line of TOML; strings, numbers and lists are written as in JSON."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in sorted(value.items()))
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return json.dumps(value) if value == value and abs(value) != float("inf") else str(value)
    raise TypeError(f"a plan must consist of text, numbers, lists and tables, got {brief(value)}.")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)
