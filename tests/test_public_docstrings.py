"""The docstring of every public function and class against its signature: each argument is listed.

Public are the names of `posenc.__all__` with their public methods, and those of `MODULES`.
"""

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from torch import nn

import posenc

MODULES = [
    "posenc.masks",
    "posenc.positions",
    "posenc.plot",
    "posenc.testing",
    "posenc.models.adapter",
    "posenc.encodings.rotary.extension",
]
# Public functions of modules that hold more than those
FUNCTIONS = [posenc.properties.check, posenc.properties.conform, posenc.study.load]


def test_every_argument_of_a_public_name_is_listed_in_its_docstring():
    """The signature, read by `inspect`, against the items "- `name`: meaning" of the docstring."""
    missing = {name: left for name, thing in public() if (left := unlisted(thing))}
    assert not missing, "\n".join(f"{name}: {', '.join(left)}" for name, left in missing.items())


def test_every_public_function_and_class_has_an_example():
    """The doctests that `pytest --doctest-modules` would run, found by `doctest`'s own parser."""
    examples = {
        name: doctest.DocTestParser().get_examples(thing.__doc__ or "")
        for name, thing in public()
        if not is_method(thing)
    }
    assert len(examples) > 80
    assert [name for name, found in examples.items() if not found] == []


@pytest.mark.parametrize("text", ["", "- `b`: second", "the argument `a`", "- a: first"])
def test_an_argument_that_is_not_listed_is_found(text: str):
    """A function whose docstring does not list `a` as an item."""

    def function(a: int) -> None: ...

    function.__doc__ = f"Do.\n\n    {text}\n"
    assert unlisted(function) == ["a"]


def test_an_item_may_list_several_arguments():
    def function(a: int, b: int) -> None:
        """Do.

        - `a`, `b`: both
        """

    assert unlisted(function) == []


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, class and method, once, under the name that a user types."""
    named = {f"posenc.{name}": getattr(posenc, name) for name in posenc.__all__}
    for name in MODULES:
        module = module_of(name)
        named |= {f"{name}.{key}": value for key, value in of_module(module)}
    named |= {f"{one.__module__}.{one.__name__}": one for one in FUNCTIONS}
    seen: set[int] = set()
    for name, thing in named.items():
        if isinstance(thing, ModuleType) or not callable(thing) or id(thing) in seen:
            continue
        seen.add(id(thing))
        yield name, thing
        if inspect.isclass(thing):
            yield from methods(name, thing)


def is_method(thing: Callable[..., Any]) -> bool:
    return "." in thing.__qualname__


def module_of(name: str) -> ModuleType:
    parent, _, last = name.rpartition(".")
    return (
        getattr(posenc, last) if parent == "posenc" and last != "testing" else import_module(name)
    )


def of_module(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The names in `__all__`, or the functions and classes that the module defines."""
    listed = getattr(module, "__all__", None)
    for name, value in vars(module).items() if listed is None else []:
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__:
            yield name, value
    for name in listed or []:
        yield name, getattr(module, name)


def methods(name: str, cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods that a class defines, less those that a base class of posenc documents."""
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("posenc.")]
    for key, value in vars(cls).items():
        inherited = any(key in vars(base) for base in bases)
        if inspect.isfunction(value) and not key.startswith("_") and not inherited:
            yield f"{name}.{key}", value


def unlisted(thing: Callable[..., Any]) -> list[str]:
    """Names of parameters that no item of the docstring begins with."""
    # The constructor of nn.Module takes nothing, and its signature hides that
    bare = inspect.isclass(thing) and thing.__init__ is nn.Module.__init__
    parameters = {} if bare else inspect.signature(thing).parameters
    names = [name for name in parameters if name != "self"]
    items = re.findall(r"^\s*- ((?:`[^`]+`(?:, | and )?)+)", thing.__doc__ or "", re.MULTILINE)
    listed = {name.strip("*") for item in items for name in re.findall(r"`([^`]+)`", item)}
    return [name for name in names if name not in listed]
