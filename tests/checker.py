"""The checker of types in tests: beartype, to which a whole number is a number, as PEP 484 says.

jaxtyping's import hook puts `jaxtyping.jaxtyped` above each function of the library. Its own builds
two more functions for each, binds the arguments to their names at each call, and checks each call
twice, which doubles the time of all tests. The one that takes its place here has beartype check
arguments and result once, within sizes of axes that hold for this call alone. What has no tensor
in its types is left to pyright, but in a thorough run.
"""

import dataclasses
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from types import CodeType

import jaxtyping
import torch
from beartype import BeartypeConf, beartype
from thorough import THOROUGH

REFUSED = jaxtyping.TypeCheckError  # a TypeError, as jaxtyping's own
check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=REFUSED))
sizes_of_a_call = jaxtyping.jaxtyped("context")
# A function within a function is defined anew at each call of that: beartype reads its types once.
of_code: dict[CodeType, tuple[Callable, bool]] = {}
called: ContextVar[Callable] = ContextVar("called")


def known(hint, function):
    """Test whether a name in quotes means something here: some are there for pyright alone."""
    try:
        return not isinstance(hint, str) or eval(hint, function.__globals__) is not None
    except (NameError, TypeError):
        return False


def unchecked():
    """True where checks are switched off, and where a graph is traced: its sizes are no numbers."""
    return jaxtyping.config.jaxtyping_disable or torch.compiler.is_compiling()


def typed(thing, stands_for_it, typechecker):
    """Return the checked form of what has the types of `thing`, and whether there are tensors."""
    written = thing.__annotations__
    tensors = any(isinstance(x, str) or "jaxtyping" in repr(x) for x in written.values())
    thing.__annotations__ = {n: hint for n, hint in written.items() if known(hint, thing)}
    stands_for_it.__annotations__ = thing.__annotations__
    checked, thing.__annotations__ = typechecker(stands_for_it), written
    return checked, tensors


def within(thing, typechecker):
    """Return the checked form that all functions of the same code share: it calls `called`."""
    if thing.__code__ not in of_code:

        @wraps(thing)
        def stands_for_it(*args, **kwargs):
            return called.get()(*args, **kwargs)

        of_code[thing.__code__] = typed(thing, stands_for_it, typechecker)
    return of_code[thing.__code__]


def call_as(thing, checked, *args, **kwargs):
    """Call the checked form that `thing` shares with others, which calls `thing`."""
    before = called.set(thing)
    try:
        return checked(*args, **kwargs)
    finally:
        called.reset(before)


def jaxtyped(thing=None, *, typechecker=check):
    """Return a function, or a class with the fields of a dataclass, whose types are checked."""
    if thing is None:
        return partial(jaxtyped, typechecker=typechecker)
    if thing == "context":
        return sizes_of_a_call
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and not hasattr(thing.__init__, "__wrapped__"):
            thing.__init__ = jaxtyped(thing.__init__, typechecker=typechecker)
        return thing
    if not thing.__annotations__:
        return thing
    if "<locals>" in thing.__qualname__:
        of_all, tensors = within(thing, typechecker)
        checked = partial(call_as, thing, of_all)
    else:
        checked, tensors = typed(thing, thing, typechecker)
    if tensors:

        @wraps(thing)
        def run(*args, **kwargs):
            if unchecked():
                return thing(*args, **kwargs)
            with sizes_of_a_call:
                return checked(*args, **kwargs)

        return run
    if not THOROUGH:
        return thing

    @wraps(thing)
    def run_as_typed(*args, **kwargs):
        return (thing if unchecked() else checked)(*args, **kwargs)

    return run_as_typed


jaxtyping.jaxtyped = jaxtyped  # the first function that the hook meets imports this
