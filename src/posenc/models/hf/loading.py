"""Load a transformers model and its tokenizer from a folder that may be malicious.

posenc reads the config, the tokenizer and the weights, within limits and inside the folder, and
passes their contents to transformers. Code, pickles, adapters, kernels from a hub and the network
are never used. Weights that are missing or unexpected raise an error with their names.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from posenc.models.config.parse import ENTRY
from posenc.models.config.source import Source
from posenc.models.files.errors import Broken, ModelError
from posenc.models.files.folder import inside
from posenc.models.files.strict import opened
from posenc.models.hf.tokens import Tokens
from posenc.models.weights import Weights
from posenc.models.weights.info import BITS
from posenc.models.weights.memory import check_memory
from posenc.support.arguments import memory
from posenc.support.text import printable

TOKENIZER = "tokenizer.json"
MOST_TOKENIZER = 2**27  # bytes
MOST_BUFFERS = 2**30  # bytes of tables that a model computes when it is built
FLOATS = {"F64", "F32", "F16", "BF16"}
UNSAFE = {  # keys of a config that make transformers load or run something else: their effect
    "auto_map": "code of the model's own",
    "custom_pipelines": "code of the model's own",
    "quantization_config": "a quantiser. Convert the weights to floating point first",
    "compression_config": "a quantiser. Convert the weights to floating point first",
    "peft_config": "an adapter. Merge it into the weights first",
    "use_kernels": "kernels of a hub",
    "kernel_config": "kernels of a hub",
    "fusion_config": "fused modules",
    "transformers_weights": "another file of weights",
    "use_pretrained_backbone": "another model from a hub",
    "use_timm_backbone": "another model from a hub",
    "backbone": "another model from a hub",
}
# Keys that choose kernels, also with a leading _
CHOICES = ("attn_implementation", "experts_implementation")
LABELS = ("num_labels", "id2label", "label2id")  # keys of heads, which are not built


def load(
    folder: Path, head: bool = False, source: Source | None = None
) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the model, its tokenizer, and the names of weights that were not loaded.

    The model has no head by default. Weights that only a head uses are not loaded then.

    - `head`: True for the model with its head, which predicts the next token
    - `source`: the folder as a Source, if it is open already

    Raises ModelError for anything that cannot be read with certainty, before weights are loaded.
    """
    if os.path.lexists(folder / "adapter_config.json"):
        raise ModelError("adapter_config.json", "", "is an adapter. Merge it into its model first")
    source = source or Source(folder)
    files, config = source.files, source.values
    if config is None:
        raise ModelError(folder, "", "contains no config.json, so it cannot be loaded")
    _refuse_unsafe_keys(config)
    weights = source.weights
    if files.format != "safetensors":
        raise ModelError(files.weights[0], "", "must be safetensors", files.format)
    for name, info in weights.infos.items():
        if name.endswith("weight") and info.dtype not in FLOATS:
            raise ModelError(
                info.file, name, "must not be quantised", info.dtype, ", ".join(sorted(FLOATS))
            )
    tokenizer = _tokenizer(folder)
    model, unused = _model(config, weights, head)
    return model, tokenizer, unused


def load_gguf(source: Source) -> tuple[Any, Any]:
    """Return the model with its head from a GGUF file, and its tokenizer.

    Raises ModelError for anything that cannot be read with certainty, before memory is allocated;
    Broken for a file that is truncated or lacks tensors.
    """
    from transformers.models.auto.configuration_auto import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    weights, path = source.weights, source.files.weights[0]
    weights.check_whole()
    # The folder that transformers reads contains only a link to the GGUF file
    with tempfile.TemporaryDirectory() as alone, _quiet():
        (Path(alone) / "model.gguf").symlink_to(path.resolve())
        how: dict[str, Any] = dict(gguf_file="model.gguf", local_files_only=True)
        with one_sentence(path.name, "cannot be opened by transformers"):
            config: Any = AutoConfig.from_pretrained(alone, **how)
            model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
            empty = _empty(model_class, config, weights, path.name)
        _refuse_unless_as_large(empty, weights, path.name)
        with one_sentence(path.name, "cannot be opened by transformers"):
            made: Any = AutoTokenizer.from_pretrained(alone, **how)
            tokenizer = Tokens(path.name, made.backend_tokenizer.to_str())
            model, report = model_class.from_pretrained(
                alone,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **how,
            )
    _refuse_contradicted(report["mismatched_keys"], weights, path.name)
    needed = sum(parameter.numel() for parameter in empty.parameters())
    present = sum(info.elements for info in weights.infos.values())
    if report["mismatched_keys"] or (report["missing_keys"] and present >= needed):
        # transformers uses defaults of its classes for keys that it does not read
        name = sorted(report["missing_keys"] or [key for key, *_ in report["mismatched_keys"]])[0]
        problem = "has another shape or another name in transformers"
        raise ModelError(path.name, name, problem)
    _refuse_lacking(report, weights, path.name)
    return model.eval(), tokenizer


def _refuse_contradicted(mismatched: Iterable[Any], weights: Weights, file: str) -> None:
    """Raise Broken for a feed-forward tensor whose shape contradicts its GGUF file's metadata.

    A mismatch counts only if transformers expects the shape in the metadata: some architectures
    join two tensors, and for keys that it does not read transformers uses defaults of its classes.
    """
    name = weights.metadata["general.architecture"]
    width, inner = (
        weights.metadata.get(f"{name}.{key}") for key in ("embedding_length", "feed_forward_length")
    )
    shapes = {"ffn_up": (inner, width), "ffn_gate": (inner, width), "ffn_down": (width, inner)}
    for info in weights.infos.values():
        part = info.name.split(".")[-2] if info.name.endswith(".weight") else ""
        for _, stored, expected in mismatched:
            if tuple(stored) == info.shape and tuple(expected) == shapes.get(part):
                problem = f"must have shape {list(expected)} by the metadata of {file}"
                raise Broken(info.file, info.name, problem, list(stored))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' warnings and progress bars; missing weights raise an error instead."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def one_sentence(file: str | Path, what: str) -> Iterator[None]:
    """Convert an error that another library raises for a bad file to a ModelError of one line.

    Panics in Rust raise exceptions that do not derive from `Exception`.
    """
    try:
        yield
    except ModelError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        message = " ".join(str(error).split())
        raise ModelError(
            file, "", f"{what}: {type(error).__name__}: {printable(message, 300)}"
        ) from None


def _refuse_unsafe_keys(config: Mapping[str, Any], path: str = "") -> None:
    """Raise ModelError if a config makes transformers run foreign code or load other files."""
    for key, value in config.items():
        at = f"{path}{key}"
        if key in UNSAFE and value not in (None, False, {}, []):
            raise ModelError("config.json", at, f"must be absent. posenc never loads {UNSAFE[key]}")
        if key.strip("_").removesuffix("_internal") in CHOICES and any(
            "/" in x for x in _texts(value)
        ):
            raise ModelError(
                "config.json", at, "must not name kernels on a hub, which posenc never loads", value
            )
        for n, inner in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(inner, dict):
                _refuse_unsafe_keys(inner, f"{at}.{n}." if isinstance(value, list) else f"{at}.")


def _texts(value: Any) -> Iterator[str]:
    """Yield every string within a JSON value."""
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _texts(inner)


def _without(value: Any, keys: Iterable[str]) -> Any:
    """Return a copy of a JSON value from which `keys` are removed at any depth."""
    if isinstance(value, dict):
        return {k: _without(inner, keys) for k, inner in value.items() if k not in keys}
    return [_without(inner, keys) for inner in value] if isinstance(value, list) else value


def _tokenizer(folder: Path) -> Tokens:
    """Return the tokenizer that tokenizer.json in a folder defines; no other file is needed."""
    if not os.path.lexists(folder / TOKENIZER):
        raise ModelError(
            folder.resolve(),
            "",
            f"contains no {TOKENIZER}, which is needed to read text. Open the tokenizer with"
            " transformers' AutoTokenizer, and write the file with save_pretrained",
        )
    with opened(inside(folder, TOKENIZER)) as file:
        raw = file.read(MOST_TOKENIZER + 1)
    if len(raw) > MOST_TOKENIZER:
        raise ModelError(TOKENIZER, "", "is too large", allowed=f"up to {MOST_TOKENIZER} bytes")
    with one_sentence(TOKENIZER, "is not a tokenizer"):
        tokenizer = Tokens(TOKENIZER, raw.decode())
    # An unusable definition raises here, before the weights are read
    tokenizer("")
    return tokenizer


def _model(config: Mapping[str, Any], weights: Weights, head: bool) -> tuple[Any, tuple[str, ...]]:
    """Return the model with its weights, and the names of head weights that were not loaded."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING

    classes = MODEL_FOR_CAUSAL_LM_MAPPING if head else MODEL_MAPPING

    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise ModelError("config.json", "model_type", "must be a model type of transformers", kind)
    choices = [f"{before}{key}" for key in CHOICES for before in ("", "_")]
    choices += [f"_{key}_internal" for key in CHOICES]
    plain = _without(config, {*choices, *LABELS})
    with one_sentence("config.json", "does not describe a model of transformers"):
        built = CONFIG_MAPPING[kind].from_dict(plain)
        if head and type(built) not in classes:
            problem = "must predict the next token, so that a loss can be measured"
            raise ModelError("config.json", "model_type", problem, kind)
        model_class: Any = classes[type(built)]
        model_class = model_class[0] if isinstance(model_class, tuple) else model_class
        empty = _empty(model_class, built, weights)
    _refuse_unless_as_large(empty, weights)
    with one_sentence("config.json", "and the weights do not match"), _quiet():
        model, report = model_class.from_pretrained(
            None,
            config=built,
            state_dict=dict(weights.items()),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            local_files_only=True,
        )
    unused = _unused(model_class.base_model_prefix, report, weights, head)
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise Broken("model", name, "contains numbers that are not finite")
    return model.eval(), unused


def load_without_encoding(root: Path, file: Path, names: Any, options: dict[str, Any]) -> Any:
    """Load a model with its head, without the encoding that was saved with the model.

    - `names`: `architectures` of its config
    - `options`: arguments for `from_pretrained`

    Raises ModelError for missing or unexpected weights.
    """
    import transformers

    name = names[0] if isinstance(names, list) and names else names
    kind: Any = getattr(transformers, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise ModelError(file, "architectures", "must name a model class of transformers", names)
    settings: Any = kind.config_class
    # The stored choice is posenc's attention, so the caller's choice replaces it
    chosen = options.pop("attn_implementation", None)
    config = settings.from_pretrained(root, local_files_only=True, attn_implementation=chosen)
    del config.posenc
    # The encoding's weights are unexpected for this class, and are read afterwards
    own_weights = [rf"(^|\.){ENTRY}\.encodings\."]
    silent: Any = type(kind.__name__, (kind,), {"_keys_to_ignore_on_load_unexpected": own_weights})
    silent.__module__ = kind.__module__
    model, report = silent.from_pretrained(
        root,
        config=config,
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
        **options,
    )
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(what):
            keys = printable(", ".join(map(str, sorted(report[what]))), 200)
            raise ModelError(file, "", f"{what.replace('_', ' ')} in the weights: {keys}")
    model.__class__ = kind
    return model


def _empty(model_class: Any, config: Any, weights: Weights, file: str = "config.json") -> nn.Module:
    """Build the model on the meta device. Raises Broken if it has far too many modules."""
    count, most = 0, 1000 + 20 * len(weights)

    def counted(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise Broken(
                file,
                "",
                f"must fit the weights, got over {most:,} modules for {len(weights):,} tensors",
            )

    hook = register_module_module_registration_hook(counted)
    try:
        with torch.device("meta"):
            return model_class(config)
    finally:
        hook.remove()


def _refuse_unless_as_large(empty: nn.Module, weights: Weights, file: str = "config.json") -> None:
    """Raise ModelError if the model of a config is much larger than the files of its weights."""
    needed = sum(parameter.numel() for parameter in empty.parameters())
    present = sum(info.elements for info in weights.infos.values())
    computed = sum(buffer.numel() * buffer.element_size() for buffer in empty.buffers())
    if needed > 2 * present + 2**22:
        name = max(empty.named_parameters(), key=lambda pair: pair[1].numel())[0]
        raise Broken(
            file,
            "",
            f"describes {needed:,} weights, most of them in {printable(name)}, but the files have"
            f" {present:,}",
        )
    check_memory(computed, file, "", MOST_BUFFERS, of="of memory for tables")
    # Block-quantised weights become float32
    stored = sum(info.elements * BITS.get(info.dtype, 32) // 8 for info in weights.infos.values())
    check_memory(stored, "the weights", "", memory(), of="of memory")


def _unused(
    prefix: str, report: Mapping[str, Any], weights: Weights, head: bool
) -> tuple[str, ...]:
    """Return the names of weights that the model does not use because it was built without a head.

    Raises ModelError for missing weights, wrong shapes, and other unexpected weights.
    """
    lack = report["missing_keys"]
    if lack and prefix and not any(name.startswith(f"{prefix}.") for name in lack) and head:
        raise ModelError(
            "model", "", f"has no head that predicts the next token; missing: {named(sorted(lack))}"
        )
    _refuse_lacking(report, weights, "config.json")
    if report["error_msgs"]:
        raise ModelError(
            "config.json", "", printable(" ".join(report["error_msgs"][0].split()), 300)
        )
    # Names with the prefix come from a model with a head, whose weights may be unused
    has_head = any(name.startswith(f"{prefix}.") for name in weights)
    unused = sorted(report["unexpected_keys"])
    strange = [name for name in unused if not has_head or name.startswith(f"{prefix}.")]
    if strange:
        raise ModelError(
            "config.json", "", f"describes no module for these weights: {named(strange)}"
        )
    return tuple(unused)


def _refuse_lacking(report: Mapping[str, Any], weights: Weights, file: str) -> None:
    """Raise Broken for weights that are missing or have another shape than the config describes."""
    lack = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if lack:
        raise Broken(file, "", f"describes weights that are missing: {named(lack)}")
    if report["mismatched_keys"]:
        name, stored, expected = min(report["mismatched_keys"])
        problem = f"must have shape {list(expected)} by {file}"
        raise Broken(next(iter(weights.infos.values())).file, name, problem, list(stored))


def named(names: Sequence[str]) -> str:
    """Format the first three names of a list and the number of the others."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(map(printable, names[:3])) + more
