"""Ways in which Python and torch code can write to the weights of an encoding, one function each.

Each is a generator function of a holder, an object with the attribute `encoding`. The code before
`yield` runs before the weights are used; the code after `yield` is the write. Some writes keep the
counters of autograd, some keep the addresses, and some change only a few numbers.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, parametrizations, parametrize, vector_to_parameters

from posenc import Encoding

Way = Callable[[Any], Iterator[None]]


def moved(x: Tensor) -> Tensor:
    """Return new values for a weight x, bounded in repeated calls, and positive if x is."""
    return 0.6 * x.detach() + 0.4 * torch.rand_like(x)


def rows(x: Tensor) -> list[int]:
    """Return the indices of the first and the middle row (offset 0 in tables of offsets)."""
    return sorted({0, len(x) // 2})


def low_rank(x: Tensor) -> Tensor:
    """Return a random change of rank 1 for a weight, as a low-rank adapter (LoRA) makes."""
    return (torch.rand(len(x), 1) @ torch.rand(1, x[0].numel())).view(x.shape)


# Writes to one parameter ------------------------------------------------------------------------


def one_row(x: Tensor) -> None:
    for row in rows(x):
        x.data[row] += 1


def by_numpy(x: Tensor) -> None:
    x.detach().numpy()[...] = moved(x).numpy()


def by_storage(x: Any) -> None:
    x.untyped_storage().copy_(moved(x).contiguous().untyped_storage())


def resharded(x: Tensor) -> None:
    """Free the storage and fill it again, as FSDP does with gathered parameters."""
    storage, after = x.untyped_storage(), moved(x)
    size = storage.size()
    storage.resize_(0)
    storage.resize_(size)
    x.data.copy_(after)


def unseen_by_autograd(x: Tensor) -> None:
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(x):
        x.copy_(moved(x))


def in_inference_mode(x: Tensor) -> None:
    with torch.inference_mode():
        x.copy_(moved(x))


def without_gradients(x: Tensor) -> None:
    with torch.no_grad():
        x.add_(0.3 * torch.rand_like(x))


def set_to_another(x: Any) -> None:
    with torch.no_grad():
        x.set_(moved(x))


def other_data(x: Tensor) -> None:
    x.data = moved(x)


OF_A_PARAMETER: dict[str, Callable[[Any], Any]] = {
    "data.copy_": lambda x: x.data.copy_(moved(x)),
    "data.add_": lambda x: x.data.add_(0.3 * torch.rand_like(x)),
    "data.mul_": lambda x: x.data.mul_(0.6),
    "other data": other_data,
    "one row of data": one_row,
    "numpy": by_numpy,
    "copied into the storage": by_storage,
    "resharded": resharded,
    "unseen by autograd": unseen_by_autograd,
    "inference mode": in_inference_mode,
    "no_grad": without_gradients,
    "set_": set_to_another,
    "swap_tensors": lambda x: torch.utils.swap_tensors(x, nn.Parameter(moved(x), x.requires_grad)),
    "initialised": lambda x: nn.init.uniform_(x),
}


def of_each(write: Callable[[Any], Any]) -> Way:
    """Return a function that writes to every parameter by `write`, each in its own memory."""

    def way(holder: Any) -> Iterator[None]:
        for x in holder.encoding.parameters():
            x.data = x.data.clone()
        yield
        for x in holder.encoding.parameters():
            write(x)

    return way


# Writes to an encoding --------------------------------------------------------------------------


def foreach(holder: Any) -> Iterator[None]:
    yield
    torch._foreach_mul_([x.data for x in holder.encoding.parameters()], 0.6)  # type: ignore


def shared_memory(holder: Any) -> Iterator[None]:
    """Write to the memory of the parameters through a shared mapping, as another process would."""
    others = []
    for x in holder.encoding.parameters():
        with tempfile.NamedTemporaryFile() as file:
            mapped = [
                torch.from_file(file.name, True, x.numel(), dtype=x.dtype).view(x.shape)
                for _ in range(2)
            ]
        x.data = mapped[0].copy_(x.data)
        others.append(mapped[1])
    yield
    for other in others:
        other.copy_(moved(other))


def applied(holder: Any) -> Iterator[None]:
    yield
    holder.encoding._apply(moved)


def optimised(of: type[torch.optim.Optimizer], whole: bool, **options: Any) -> Way:
    """Return a function that does one optimiser step, with a gradient in all rows or few."""

    def way(holder: Any) -> Iterator[None]:
        yield
        weights = [*holder.encoding.parameters()]
        for x in weights:
            x.grad = torch.zeros_like(x)
            some = slice(None) if whole else rows(x)
            x.grad[some] = -torch.rand_like(x[some])
        of(weights, lr=0.3, **options).step()  # type: ignore[call-arg]
        for x in weights:
            x.grad = None

    return way


def loaded(assign: bool) -> Way:
    def way(holder: Any) -> Iterator[None]:
        yield
        weights = {name: moved(x) for name, x in holder.encoding.state_dict().items()}
        holder.encoding.load_state_dict(weights, assign=assign)

    return way


def own_parameters(encoding: nn.Module) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """Return (module, name, parameter) for each parameter of an encoding and its submodules."""
    return [
        (part, name, x)
        for part in encoding.modules()
        for name, x in part.named_parameters(recurse=False)
    ]


def new_parameters(holder: Any) -> Iterator[None]:
    yield
    for part, name, x in own_parameters(holder.encoding):
        setattr(part, name, nn.Parameter(moved(x), x.requires_grad))


class Smaller(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.6 * x


def free_to_parametrize(encoding: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return (module, name) of the weights that torch can parametrize; some names are reserved."""
    return [
        (part, name)
        for part, name, _ in own_parameters(encoding)
        if not isinstance(part, parametrize.ParametrizationList)
        and not hasattr(nn.ModuleDict, name)
    ]


def parametrized(holder: Any) -> Iterator[None]:
    yield
    for part, name in free_to_parametrize(holder.encoding):
        parametrize.register_parametrization(part, name, Smaller())


def weight_norm(holder: Any) -> Iterator[None]:
    for part, name in free_to_parametrize(holder.encoding):
        parametrizations.weight_norm(part, name)
    yield
    for x in holder.encoding.parameters():
        x.data.mul_(0.6)


def from_a_vector(holder: Any) -> Iterator[None]:
    yield
    weights = [*holder.encoding.parameters()]
    vector_to_parameters(moved(parameters_to_vector(weights)), weights)


def lora_merged(holder: Any) -> Iterator[None]:
    yield
    for x in holder.encoding.parameters():
        x.data += low_rank(x)


def lora_unmerged(holder: Any) -> Iterator[None]:
    weights = [*holder.encoding.parameters()]
    added = [*map(low_rank, weights)]
    for x, more in zip(weights, added, strict=True):
        x.data += more
    yield
    for x, more in zip(weights, added, strict=True):
        x.data -= more


def teacher(holder: Any) -> Iterator[None]:
    """Update the weights as a moving average of a student model, as in BYOL and DINO."""
    student = copy.deepcopy(holder.encoding)
    holder.encoding.requires_grad_(False)
    yield
    for x, y in zip(holder.encoding.parameters(), student.parameters(), strict=True):
        y.data.copy_(moved(y))
        x.data.mul_(0.2).add_(y.data, alpha=0.8)


def rounded(holder: Any) -> Iterator[None]:
    yield
    holder.encoding.to(torch.bfloat16).to(torch.float32)


def unfrozen(holder: Any) -> Iterator[None]:
    holder.encoding.requires_grad_(False)
    yield
    holder.encoding.requires_grad_(True)
    for x in holder.encoding.parameters():
        x.data.copy_(moved(x))


def other_parts(holder: Any) -> Iterator[None]:
    """Replace each linear layer, and each encoding in a sum, by a changed copy."""
    yield
    for parent in [*holder.encoding.modules()]:
        for name, part in [*parent.named_children()]:
            if isinstance(part, nn.Linear | Encoding):
                parent.register_module(name, changed_copy(part))


def number(holder: Any) -> Iterator[None]:
    yield
    holder.encoding.softmax_scale = 0.9 * holder.encoding.scale(8)


def changed_copy(module: nn.Module) -> Any:
    copied = copy.deepcopy(module)
    for x in copied.parameters():
        x.data.copy_(moved(x))
    return copied


def other_encoding(holder: Any) -> Iterator[None]:
    yield
    holder.encoding = changed_copy(holder.encoding)


def deep_copy(holder: Any) -> Iterator[None]:
    """Replace the encoding by a deep copy, and write to the copy after it has been used."""
    holder.encoding = copy.deepcopy(holder.encoding)
    yield
    for x in holder.encoding.parameters():
        x.data.copy_(moved(x))


SGD, ADAM = torch.optim.SGD, torch.optim.Adam
WAYS: dict[str, Way] = {name: of_each(write) for name, write in OF_A_PARAMETER.items()} | {
    "foreach on data": foreach,
    "shared memory": shared_memory,
    "_apply": applied,
    "SGD": optimised(SGD, True),
    "SGD, fused, of few rows": optimised(SGD, False, fused=True),
    "SGD, foreach, of few rows": optimised(SGD, False, foreach=True),
    "Adam, fused, of few rows": optimised(ADAM, False, fused=True),
    "Adam, foreach, of few rows": optimised(ADAM, False, foreach=True),
    "AdamW": optimised(torch.optim.AdamW, True),
    "loaded": loaded(False),
    "assigned": loaded(True),
    "new parameters": new_parameters,
    "parametrized": parametrized,
    "weight_norm": weight_norm,
    "from a vector": from_a_vector,
    "LoRA merged": lora_merged,
    "LoRA unmerged": lora_unmerged,
    "teacher": teacher,
    "rounded": rounded,
    "unfrozen": unfrozen,
    "another module within": other_parts,
    "a number": number,
    "another encoding": other_encoding,
    "deep copy": deep_copy,
}
# These put another object in the holder, which a model that has the encoding does not look at.
REPLACE = {"another encoding", "deep copy"}
# These may write nothing, or next to nothing.
SMALL = {"rounded", "another module within", "parametrized", "weight_norm"}


# Writes to tensors that are attributes, and to positions ------------------------------------------


def attributes(encoding: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    """Return (module, name, tensor) for float tensors that are neither parameters nor buffers."""
    return [
        (part, name, x)
        for part in encoding.modules()
        for name, x in vars(part).items()
        if isinstance(x, Tensor) and x.is_floating_point()
    ]


def write_tensor(x: Tensor, how: str, by: int) -> None:
    """Write to a tensor: add `by` to integers, multiply other numbers by 1 + 0.1 · `by`."""
    whole = not x.is_floating_point()
    change = (lambda x: x.add_(by)) if whole else (lambda x: x.mul_(1 + 0.1 * by))
    if how == "in place":
        with torch.inference_mode(x.is_inference()), torch.no_grad():
            change(x)
    elif how == "data":
        with torch.inference_mode(x.is_inference()):
            change(x.data)
    elif how == "numpy":
        numbers = x.detach().numpy()
        numbers[...] = numbers + by if whole else numbers * (1 + 0.1 * by)
    elif how == "inference mode":
        with torch.inference_mode():
            change(x)
    else:
        raise ValueError(how)


TENSOR_WRITES = "in place", "data", "numpy", "inference mode"
