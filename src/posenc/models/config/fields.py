"""Read the keys of a config one by one, each checked for its type and range.

An impossible value is refused with its file, its key and what is allowed; null counts as a missing
key. `Fields` remembers which keys have been read, so that the others can be named.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from posenc.core.text import printable, shown
from posenc.models.files.errors import ModelError, Unread
from posenc.models.files.strict import MOST_INT

WIDEST = 2**12  # channels of a head: beyond, it is the width of something else
# A number must exceed its bound by this: closer to it, what is divided by it overflows
LEAST_MARGIN = 1e-9


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
        self.keys_read: set[str] = set()

    def stated(self, key: str) -> Any:
        """Return the value in the file, under either name; None where there is none."""
        name = self.names.get(key, key)
        self.keys_read |= {name, key}
        renamed, usual = self.values.get(name), self.values.get(key)
        if name != key and None not in (renamed, usual) and renamed != usual:
            where = f"{self.at(name)} and {self.path}.{key}" if self.path else f"{name} and {key}"
            raise ModelError(self.file, where, f"disagree: {shown(renamed)} and {shown(usual)}")
        return usual if renamed is None else renamed

    def value(self, key: str) -> Any:
        """Return the value in the file, null included, or else the default of the model's class."""
        value, name = self.stated(key), self.names.get(key, key)
        if value is not None or name in self.values or key in self.values:
            return value
        return self.defaults.get(name, self.defaults.get(key))

    def count(self, key: str, least: int = 1, most: int = MOST_INT) -> int | None:
        """Read a whole number, at least `least` and at most `most`."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) <= MOST_INT:
            # JSON does not tell 4096 from 4096.0
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            upper = "2⁵³" if most == MOST_INT else f"{most}"
            self.fail(key, "must be a whole number", value, f"{least} … {upper}")
        return value

    def number(self, key: str, above: float = 0.0, most: float = MOST_INT) -> float | None:
        """Read a number above `above`."""
        value = self.value(key)
        if value is None:
            return None
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not _between(value, above, most):
            near = f" by at least {LEAST_MARGIN:g}" if fits and above < value <= most else ""
            upper = "2⁵³" if most == MOST_INT else f"{most:g}"
            upper = f" and at most {upper}" if most < MOST_INT or (fits and value > most) else ""
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
        """Read a list of `length` positive numbers."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            self.fail(key, f"must be a list of {length} numbers", value)
        for n, item in enumerate(value):
            fits = isinstance(item, (int, float)) and not isinstance(item, bool)
            if not fits or not _between(item, 0, MOST_INT):
                self.fail(f"{key}[{n}]", "must be a number", item, "above 0, at most 2⁵³")
        return tuple(map(float, value))

    def counts(self, key: str, least: int = 0) -> tuple[int, ...] | None:
        """Read a list of whole numbers."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > 10_000:
            self.fail(key, "must be a list of whole numbers", value)
        for n, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, int) or not least <= item <= MOST_INT:
                self.fail(f"{key}[{n}]", "must be a whole number", item, f"{least} … 2⁵³")
        return tuple(value)

    def words(self, key: str) -> tuple[str, ...] | None:
        """Read a list of strings."""
        value = self.value(key)
        if value is None:
            return None
        names = isinstance(value, list) and len(value) <= 10_000
        if not names or not all(isinstance(word, str) for word in value):
            self.fail(key, "must be a list of names", value)
        return tuple(value)

    def object(self, key: str) -> "Fields | None":
        """Read an object within this one."""
        value = self.stated(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(key, "must be an object", value)
        return Fields(value, self.file, self.at(key))

    def at(self, key: str) -> str:
        """The path of a key in the file: "rope_scaling.factor"."""
        first = key.partition("[")[0]
        name = key.replace(first, self.names.get(first, first), 1)
        return f"{self.path}.{name}" if self.path else name

    def fail(self, key: str, problem: str, *got: Any) -> NoReturn:
        """Raise ModelError for a key; `got` is the value and, where it helps, what is allowed."""
        if not got:
            raise ModelError(self.file, self.at(key), problem)
        raise ModelError(self.file, self.at(key), problem, *got)

    def refuse(self, key: str, value: str, why: str) -> NoReturn:
        """Raise Unread: nothing is wrong with the file, but posenc does not read such a model."""
        whose = printable(value) or "a model without model_type"
        raise Unread(self.file, self.at(key), f"posenc does not read {whose}: {why}")

    def unread(self) -> Iterator[str]:
        """Keys with a value that no call has read."""
        return (k for k, v in self.values.items() if k not in self.keys_read and v is not None)

    def refuse_others(self, allowed: Sequence[str], whose: str) -> None:
        """Raise ModelError for the first key that has no meaning here."""
        for key, value in self.values.items():
            if key not in allowed and value is not None:
                near = get_close_matches(key[:80], allowed, n=1, cutoff=0.7)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.fail(key, f"means nothing to {whose}{hint}", value, ", ".join(allowed))

    def agree(self, key: str, other: "Fields", other_key: str) -> Any:
        """Read a key that may stand in two places. Raises ModelError where they differ."""
        value, other_value = self.stated(key), other.stated(other_key)
        if value is not None and other_value is not None and value != other_value:
            where = f"{self.at(key)} and {other.at(other_key)}"
            raise ModelError(self.file, where, f"disagree: {shown(value)} and {shown(other_value)}")
        return other_value if value is None else value


def head_dim(config: Fields) -> int:
    """Channels of a head: `head_dim`, or an even share of the model's width."""
    if dim := config.count("head_dim", most=WIDEST):
        return dim
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    if not width or not heads:
        config.fail("head_dim", "is missing, and so is hidden_size or num_attention_heads")
    if width % heads:
        config.fail("hidden_size", f"must be a multiple of the {heads} heads", width)
    if width > heads * WIDEST:
        config.fail(
            "hidden_size", f"shared by {heads} heads exceeds the {WIDEST} channels of one", width
        )
    return width // heads


def _between(value: float, above: float, most: float) -> bool:
    """Test whether `value` is clearly above the bound and not too large; false for NaN."""
    return value <= most and value - above >= LEAST_MARGIN
