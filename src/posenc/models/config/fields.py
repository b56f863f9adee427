"""The keys of a config, read one by one, each with what it may be.

A value that cannot be is refused here, with its file, its key and what is allowed; null is as if
the key were not there. Which keys have been read is remembered, so that the rest can be named.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from posenc.models.files.errors import ModelError, Unread, printable, shown

MOST = 2**53  # whole numbers that JSON carries without rounding; no model has a larger number
WIDEST = 2**12  # channels of a head: beyond, it is the width of something else
LEAST = 1e-9  # by which a number exceeds its bound: closer to it, what is divided by it overflows


class Fields:
    """An object of a config file. `names` translates the usual names of keys into this model's own,
    `defaults` are what its class takes where the file is silent.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        file: str,
        path: str = "",
        names: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ):
        self.values, self.file, self.path = values, file, path
        self.names, self.defaults = names or {}, defaults or {}
        self.read: set[str] = set()

    def given(self, key: str) -> Any:
        """What the file says, under either name; None where it says nothing."""
        name = self.names.get(key, key)
        self.read |= {name, key}
        own, usual = self.values.get(name), self.values.get(key)
        if name != key and None not in (own, usual) and own != usual:
            where = f"{self.at(name)} and {self.path}.{key}" if self.path else f"{name} and {key}"
            raise ModelError(self.file, where, f"disagree: {shown(own)} and {shown(usual)}")
        return usual if own is None else own

    def value(self, key: str) -> Any:
        """What the file says, null included, or else the default of the model's class."""
        found, name = self.given(key), self.names.get(key, key)
        if found is not None or name in self.values or key in self.values:
            return found
        return self.defaults.get(name, self.defaults.get(key))

    def count(self, key: str, least: int = 1, most: int = MOST) -> int | None:
        """A whole number."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) <= MOST:
            value = int(value)  # JSON does not tell 4096 from 4096.0
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            upper = "2⁵³" if most == MOST else f"{most}"
            self.fail(key, "must be a whole number", value, f"{least} … {upper}")
        return value

    def number(self, key: str, above: float = 0.0, most: float = MOST) -> float | None:
        """A number above `above`."""
        value = self.value(key)
        if value is None:
            return None
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not _between(value, above, most):
            near = f" by at least {LEAST:g}" if fits and above < value <= most else ""
            upper = "2⁵³" if most == MOST else f"{most:g}"
            upper = f" and at most {upper}" if most < MOST or (fits and value > most) else ""
            self.fail(key, "must be a number", value, f"above {above:g}{near}{upper}")
        return float(value)

    def flag(self, key: str) -> bool | None:
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            self.fail(key, "must be true or false", value)
        return value

    def choice(self, key: str, allowed: Sequence[str]) -> str | None:
        value = self.value(key)
        if value is None or (isinstance(value, str) and value in allowed):
            return value
        near = get_close_matches(str(value)[:80], allowed, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        self.fail(key, f"is not known{hint}", value, ", ".join(allowed))

    def numbers(self, key: str, length: int) -> tuple[float, ...] | None:
        """A list of so many positive numbers."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            self.fail(key, f"must be a list of {length} numbers", value)
        for n, item in enumerate(value):
            fits = isinstance(item, (int, float)) and not isinstance(item, bool)
            if not fits or not _between(item, 0, MOST):
                self.fail(f"{key}[{n}]", "must be a number", item, "above 0, at most 2⁵³")
        return tuple(map(float, value))

    def counts(self, key: str, least: int = 0) -> tuple[int, ...] | None:
        """A list of whole numbers."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > 10_000:
            self.fail(key, "must be a list of whole numbers", value)
        for n, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, int) or not least <= item <= MOST:
                self.fail(f"{key}[{n}]", "must be a whole number", item, f"{least} … 2⁵³")
        return tuple(value)

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of names."""
        value = self.value(key)
        if value is None:
            return None
        names = isinstance(value, list) and len(value) <= 10_000
        if not names or not all(isinstance(word, str) for word in value):
            self.fail(key, "must be a list of names", value)
        return tuple(value)

    def object(self, key: str) -> "Fields | None":
        """An object within this one."""
        value = self.given(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(key, "must be an object", value)
        return Fields(value, self.file, self.at(key))

    def at(self, key: str) -> str:
        """Where a key stands in the file: "rope_scaling.factor"."""
        first = key.partition("[")[0]
        own = key.replace(first, self.names.get(first, first), 1)
        return f"{self.path}.{own}" if self.path else own

    def fail(self, key: str, problem: str, *got: Any) -> NoReturn:
        """Raises ModelError for a key; `got` is what was given and, if need be, what is allowed."""
        if not got:
            raise ModelError(self.file, self.at(key), problem)
        raise ModelError(self.file, self.at(key), problem, *got)

    def refuse(self, key: str, value: str, why: str) -> NoReturn:
        """Raises Unread: nothing is wrong with the file, but posenc does not read such a model."""
        whose = printable(value) or "a model without model_type"
        raise Unread(self.file, self.at(key), f"posenc does not read {whose}: {why}")

    def unread(self) -> Iterator[str]:
        """Keys that say something and that nobody has asked for."""
        return (k for k, v in self.values.items() if k not in self.read and v is not None)

    def refuse_others(self, known: Sequence[str], whose: str) -> None:
        """Raises ModelError for the first key that has no meaning here."""
        for key, value in self.values.items():
            if key not in known and value is not None:
                near = get_close_matches(key[:80], known, n=1, cutoff=0.7)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.fail(key, f"means nothing to {whose}{hint}", value, ", ".join(known))

    def agree(self, key: str, other: "Fields", other_key: str) -> Any:
        """The value of a key that may stand in two places. Raises ModelError where they differ."""
        mine, theirs = self.given(key), other.given(other_key)
        if mine is not None and theirs is not None and mine != theirs:
            where = f"{self.at(key)} and {other.at(other_key)}"
            raise ModelError(self.file, where, f"disagree: {shown(mine)} and {shown(theirs)}")
        return theirs if mine is None else mine


def head_dim(given: Fields) -> int:
    """Channels of a head: as given, or an even share of the model's width."""
    if dim := given.count("head_dim", most=WIDEST):
        return dim
    width, heads = given.count("hidden_size"), given.count("num_attention_heads")
    if not width or not heads:
        given.fail("head_dim", "is missing, and so is hidden_size or num_attention_heads")
    if width % heads:
        given.fail("hidden_size", f"must be a multiple of the {heads} heads", width)
    if width > heads * WIDEST:
        given.fail(
            "hidden_size", f"shared by {heads} heads exceeds the {WIDEST} channels of one", width
        )
    return width // heads


def _between(value: float, above: float, most: float) -> bool:
    """Is it clearly above, and not too large? NaN is neither."""
    return value <= most and value - above >= LEAST
