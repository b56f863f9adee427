"""Read the keys of a config one by one, with checks of type and range.

An impossible value raises ModelError with file, key and allowed values; null counts as missing.
`Fields` records which keys have been read, so that the others can be reported.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import cycle, islice
from typing import Any, NoReturn

from posenc.models.config.families import Family
from posenc.models.config.spec import Fourier, Rotary
from posenc.models.files.errors import ModelError, Unread
from posenc.models.files.strict import MOST_INT
from posenc.support.text import printable, shown

WIDEST = 2**12  # channels of a head; a larger number is the width of something else
# A number must exceed its bound by this, so that a division by the difference does not overflow
LEAST_MARGIN = 1e-9

FULL, SLIDING = "full_attention", "sliding_attention"  # types of layers
LINEAR, INDEXED = "linear_attention", "indexed_attention"
PATCH_WINDOW = "window_attention"  # in windows of patches
USUAL = (FULL, SLIDING)  # types that any class may have
OLD_NAMES = {  # type of layer in older configs → in transformers 5
    "attention": FULL,
    "mamba": LINEAR,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
}


class Fields:
    """JSON object of a config; keys are read by their standard names, such as "hidden_size".

    - `names`: standard name of a key → its name in configs of this model
    - `defaults`: values of the class for keys that the config does not state
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
        """Return the value of a key, under its standard name or this model's name; None if missing.

        Raises ModelError if both names are present with different values.
        """
        name = self.names.get(key, key)
        self.keys_read |= {name, key}
        renamed, usual = self.values.get(name), self.values.get(key)
        if name != key and None not in (renamed, usual) and renamed != usual:
            where = f"{self.at(name)} and {self.path}.{key}" if self.path else f"{name} and {key}"
            raise ModelError(self.file, where, f"disagree: {shown(renamed)} and {shown(usual)}")
        return usual if renamed is None else renamed

    def value(self, key: str) -> Any:
        """Return the value of a key (None for null), or the default of the class if absent."""
        value, name = self.stated(key), self.names.get(key, key)
        if value is not None or name in self.values or key in self.values:
            return value
        return self.defaults.get(name, self.defaults.get(key))

    def count(self, key: str, least: int = 1, most: int = MOST_INT) -> int | None:
        """Return the value of a key as an integer from `least` to `most`; None if missing."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) <= MOST_INT:
            # JSON does not distinguish 4096 from 4096.0
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            upper = "2⁵³" if most == MOST_INT else f"{most}"
            self.fail(key, "must be a whole number", value, f"{least} … {upper}")
        return value

    def number(self, key: str, above: float = 0.0, most: float = MOST_INT) -> float | None:
        """Return the value of a key as a number in (`above`, `most`]; None if missing."""
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
        """Return the boolean value of a key; None if missing."""
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            self.fail(key, "must be true or false", value)
        return value

    def numbers(self, key: str, length: int) -> tuple[float, ...] | None:
        """Return the value of a key as `length` positive numbers; None if missing."""
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
        """Return the value of a key as a list of integers of at least `least`; None if missing."""
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
        """Return the value of a key as a list of strings; None if missing."""
        value = self.value(key)
        if value is None:
            return None
        names = isinstance(value, list) and len(value) <= 10_000
        if not names or not all(isinstance(word, str) for word in value):
            self.fail(key, "must be a list of names", value)
        return tuple(value)

    def object(self, key: str) -> "Fields | None":
        """Return the nested object under a key; None if missing."""
        value = self.stated(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(key, "must be an object", value)
        return Fields(value, self.file, self.at(key))

    def at(self, key: str) -> str:
        """Return the path of a key in the file, such as "rope_scaling.factor"."""
        first = key.partition("[")[0]
        name = key.replace(first, self.names.get(first, first), 1)
        return f"{self.path}.{name}" if self.path else name

    def fail(self, key: str, problem: str, *got: Any) -> NoReturn:
        """Raise ModelError for a key, with its value and the allowed values if `got` has them."""
        if not got:
            raise ModelError(self.file, self.at(key), problem)
        raise ModelError(self.file, self.at(key), problem, *got)

    def refuse(self, key: str, value: str, why: str) -> NoReturn:
        """Raise the exception Unread for a valid file of a model that posenc does not support."""
        whose = printable(value) or "a model without model_type"
        raise Unread(self.file, self.at(key), f"posenc does not support {whose}: {why}")

    def unread(self) -> Iterator[str]:
        """Yield the keys that have a value and have not been read."""
        return (k for k, v in self.values.items() if k not in self.keys_read and v is not None)

    def refuse_others(self, allowed: Sequence[str], whose: str) -> None:
        """Raise ModelError for the first key that is not in `allowed`."""
        for key, value in self.values.items():
            if key not in allowed and value is not None:
                near = get_close_matches(key[:80], allowed, n=1, cutoff=0.7)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.fail(key, f"is not a key of {whose}{hint}", value, ", ".join(allowed))

    def agree(self, key: str, other: "Fields", other_key: str) -> Any:
        """Return the value of `key` in this config or, if missing, of `other_key` in `other`.

        Raises ModelError if both keys are present with different values.
        """
        value, other_value = self.stated(key), other.stated(other_key)
        if value is not None and other_value is not None and value != other_value:
            where = f"{self.at(key)} and {other.at(other_key)}"
            raise ModelError(self.file, where, f"disagree: {shown(value)} and {shown(other_value)}")
        return other_value if value is None else value


class Config(Fields):
    """Config of one layer stack, with facts about the model's class (`family`).

    `notes` and `doubts` collect those of the specification. `rotations` has the rotation of each
    type of layer; its key is "" if all types have the same.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        file: str,
        path: str,
        family: Family,
        notes: list[str] | None = None,
    ):
        super().__init__(values, file, path, family.keys, family.defaults)
        self.family = family
        self.notes = [] if notes is None else notes
        self.doubts: tuple[str, ...] = ()
        self.rotations: dict[str, Rotary | Fourier | None] = {}

    def with_values(self, values: Mapping[str, Any], family: Family | None = None) -> "Config":
        """Return a copy of this config with other values and the same list of notes."""
        return Config(values, self.file, self.path, family or self.family, self.notes)

    def require(self, key: str, supported: Any) -> None:
        """Raise the exception Unread if a key has a value other than `supported` or null."""
        value = self.values.get(key)
        if value is not None and value != supported:
            why = f"{key} must be {shown(supported)}, got {shown(value)}"
            self.refuse(key, self.family.name, why)

    def without_constants(self, **fixed: Any) -> dict[str, Any]:
        """Return the config's values without the keys that the transformers class hard-codes.

        Raises Unread if the config states another value than the class uses.
        """
        for key, value in fixed.items():
            if self.values.get(key) not in (None, value):
                why = f"its class always uses {key} {shown(value)}"
                self.refuse(key, self.family.name, why)
        return {key: value for key, value in self.values.items() if key not in fixed}

    def depth(self) -> int:
        """Return the number of layers."""
        count = self.count("num_hidden_layers")
        if count is None:
            self.fail("num_hidden_layers", "is missing")
        if count > 10_000:
            self.fail("num_hidden_layers", "is too large", count, "1 … 10000")
        return count

    def types(
        self,
        usual: Sequence[str],
        known: Collection[str] = USUAL,
        renamed: Mapping[str, str] | None = None,
        trimmed: bool = False,
    ) -> list[str]:
        """Return the type of each layer: the config's `layer_types`, or `usual` if missing.

        known: types that the class supports, besides those with their own rope settings
        renamed: name of a type in the config → name in the class
        trimmed: whether the config may list more types than there are layers
        """
        count, listed = self.depth(), self.words("layer_types")
        if listed is None:
            return list(usual)
        listed = listed[:count] if trimmed else listed
        if len(listed) != count:
            self.fail("layer_types", f"must have {count} entries, one per layer", len(listed))
        meanings = {**OLD_NAMES, **(renamed or {})}
        kinds = [meanings.get(kind, kind) for kind in listed]
        known = dict.fromkeys((*known, *self.family.rope, *self.family.labels))
        unknown = next((kind for kind in kinds if kind not in known), None)
        if unknown is not None:
            whose = self.family.name if self.family.folder else "posenc"
            self.fail("layer_types", f"must be layer types of {whose}", unknown, ", ".join(known))
        return kinds

    def by_depth(self) -> list[str]:
        """Return layer types by Qwen2's rule: layers from `max_window_layers` on have a window."""
        count, first = self.depth(), self.count("max_window_layers", least=0)
        if self.flag("use_sliding_window") is False or self.count("sliding_window") is None:
            first = None
        return [FULL if first is None or i < first else SLIDING for i in range(count)]

    def every(self, steps: int, one: str = FULL, other: str = SLIDING, at: int = -1) -> list[str]:
        """Return layer types with period `steps`: `one` at index `at`, `other` elsewhere."""
        return [one if i % steps == at % steps else other for i in range(self.depth())]

    def period(self, key: str, usual: int) -> int:
        """Return the period of the pattern of layer types, from `key` or, if missing, `usual`.

        If the config lists `layer_types`, the key is not read.
        """
        return usual if self.stated("layer_types") else self.count(key) or usual

    def repeated(self, kinds: Sequence[str]) -> list[str]:
        """Repeat a pattern of layer types until each layer has a type."""
        return list(islice(cycle(kinds), self.depth()))

    def window(self, key: str = "sliding_window", ends: int = 0) -> int | None:
        """Return the window of sliding-window layers; None if `use_sliding_window` is false.

        ends: 1 for a bidirectional window that includes both ends
        """
        size = None if self.value("use_sliding_window") is False else self.count(key)
        return size and size + ends

    def flags(self, key: str) -> tuple[int, ...] | None:
        """Return a key's list of integers, one for each layer; None if missing or empty."""
        listed, count = self.counts(key), self.depth()
        if listed and len(listed) != count:
            self.fail(key, f"must have {count} flags, one per layer", len(listed))
        return listed or None

    def bases(self, key: str) -> list[float] | None:
        """Return a list with the RoPE base of each layer, 0 for a layer without rotation."""
        listed, count = self.value(key), self.depth()
        if listed is None:
            return None
        numbers = isinstance(listed, list) and all(type(base) in (int, float) for base in listed)
        fits = numbers and all(base == 0 or 1 < base <= MOST_INT for base in listed)
        if not fits or len(listed) != count:
            self.fail(key, f"must be {count} bases (one per layer), above 1 or equal to 0", listed)
        return list(map(float, listed))

    def inverse_root(self, key: str) -> float | None:
        """Return the softmax scale 1/√x, where x is the value of `key`; None if missing."""
        value = self.number(key)
        return None if value is None else value**-0.5


def head_dim(config: Fields) -> int:
    """Return the channels of a head: `head_dim`, or the width divided by the number of heads."""
    if dim := config.count("head_dim", most=WIDEST):
        return dim
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    if not width or not heads:
        config.fail("head_dim", "is missing, and so is hidden_size or num_attention_heads")
    if width % heads:
        config.fail("hidden_size", f"must be a multiple of the {heads} heads", width)
    if width > heads * WIDEST:
        config.fail(
            "hidden_size", f"must be at most {WIDEST} channels for each of {heads} heads", width
        )
    return width // heads


def _between(value: float, above: float, most: float) -> bool:
    """Test whether a value is at least LEAST_MARGIN above `above`, and at most `most`."""
    return value <= most and value - above >= LEAST_MARGIN
