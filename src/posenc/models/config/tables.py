"""Read the position table that a model adds to its embeddings: learned rows, or sinusoids."""

from math import isqrt

from posenc.models.config.fields import Config, Fields
from posenc.models.config.spec import Table, Waves

LARGEST = 2**30  # bytes of a table
# Keys that state the size of a grid of patches: pixels of the image, sides, or number of patches
IMAGE, EDGES, SQUARE = "image_size", "pos_emb_height", "num_position_embeddings"


def embedding(config: Config) -> Table | Waves | None:
    """Return the table that a model adds to its embeddings, or None if it adds none."""
    if config.family.kind == "sinusoidal":
        return sinusoidal(config)
    if config.family.kind != "learned":
        return None
    kind = config.stated("position_embedding_type")
    if kind not in (None, "absolute"):
        config.fail("position_embedding_type", "is not supported", kind, "'absolute'")
    return learned(config)


def learned(config: Config) -> Table:
    """Return the learned position table, which has one vector for each token or image patch."""
    family = config.family
    rows, width = _rows(config), config.count(family.width)
    if rows is None or width is None:
        config.fail("max_position_embeddings" if rows is None else "hidden_size", "is missing")
    bytes_ = 4 * rows * width
    if bytes_ > LARGEST:
        size = f"{bytes_ / 2**40:.1f} TiB" if bytes_ > 2**40 else f"{bytes_ / 2**30:.1f} GiB"
        config.fail(
            "max_position_embeddings",
            f"is too large, since the position table would need {size}",
            rows,
        )
    offset = first_row(config)
    usable = rows + family.extra - offset
    if usable < 1:
        config.fail(
            "max_position_embeddings", f"must be above {offset}, the number of unused rows", rows
        )
    return Table(usable, width, offset)


def sinusoidal(config: Config) -> Waves:
    """Return the sinusoidal table, whose base and channel order depend on the model family."""
    width, rows = required(config, "hidden_size"), config.count("max_position_embeddings")
    if width % 2:
        config.fail("hidden_size", "must be even, for pairs of sine and cosine", width)
    form = config.family.waves
    return Waves(
        width,
        float(form.get("base", 10_000.0)),
        bool(form.get("halves")),
        bool(form.get("cosines_first")),
        form.get("step") == "d/2 − 1",
        rows,
        first_row(config),
    )


def first_row(config: Config) -> int:
    """Return the index of the table row that the first token uses."""
    if config.family.offset == "pad + 1":
        return (config.count("pad_token_id", least=0) or 0) + 1
    return int(config.family.offset)


def _rows(config: Config) -> int | None:
    if not config.family.grid:
        return config.count("max_position_embeddings")
    image, patch = (sides(config, key) for key in config.family.grid)
    return (image[0] // patch[0]) * (image[1] // patch[1])


def sides(config: Fields, key: str) -> tuple[int, ...]:
    """Return (height, width) in pixels; a single number in the config counts for both."""
    sides = (
        config.counts(key, least=1) if isinstance(config.value(key), list) else config.count(key)
    )
    if sides is None or (isinstance(sides, tuple) and len(sides) != 2):
        config.fail(key, "must be one or two numbers of pixels", config.value(key))
    return sides if isinstance(sides, tuple) else (sides, sides)


def grid(config: Config, key: str) -> tuple[int, int]:
    """Return the grid (rows, columns) of a table of patches, from the config key for its size."""
    if key.endswith((IMAGE, "img_size")):
        image, patch = sides(config, key), sides(config, "patch_size")
        found = image[0] // patch[0], image[1] // patch[1]
        if min(found) < 1:
            config.fail(key, f"must be at least one patch, {max(patch)} pixels", min(image))
        return found
    if key == EDGES:
        return required(config, key), required(config, "pos_emb_width")
    count = required(config, key)
    side = isqrt(count) if key in (SQUARE, "num_patches") else count
    if side != count and side**2 != count:
        config.fail(key, "must be the square of a whole number", count)
    return side, side


def required(config: Config, key: str) -> int:
    """Return the value of a key as an integer of at least 1. Raises ModelError if missing."""
    count = config.count(key)
    if count is None:
        config.fail(key, "is missing")
    return count
