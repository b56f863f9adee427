"""Type checks of function arguments in tests, by beartype; an int passes as a float (PEP 484).

jaxtyping's import hook puts `jaxtyping.jaxtyped` above each function of the library. Its own builds
two more functions for each, binds the arguments to their names at each call, and checks each call
twice, which doubles the time of all tests. The one that takes its place here has beartype check
arguments and result once, within sizes of axes that hold for this call alone. A function none of
whose types is a tensor's shape, or in quotes, is left to pyright, but in a thorough run.
"""

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import nullcontext
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
of_code: dict[CodeType, Callable] = {}
called: ContextVar[Callable] = ContextVar("called")


def known(hint, function):
    """Test whether an annotation can be evaluated; some quoted names are for pyright alone."""
    try:
        return not isinstance(hint, str) or eval(hint, function.__globals__) is not None
    except (NameError, TypeError):
        return False


def unchecked():
    """Test whether checks are off, or torch traces a graph, in which sizes are symbols."""
    return jaxtyping.config.jaxtyping_disable or torch.compiler.is_compiling()


def has_shapes(thing):
    """Test whether an annotation of `thing` is a tensor shape, or may be one as it is a string."""
    hints = thing.__annotations__.values()
    return any(isinstance(hint, str) or "jaxtyping" in repr(hint) for hint in hints)


def typed(thing, stands_for_it, typechecker):
    """Return the function `stands_for_it`, with its arguments checked by the types of `thing`."""
    written = thing.__annotations__
    thing.__annotations__ = {n: hint for n, hint in written.items() if known(hint, thing)}
    stands_for_it.__annotations__ = thing.__annotations__
    checked, thing.__annotations__ = typechecker(stands_for_it), written
    return checked


def within(thing, typechecker):
    """Return one checked function for all closures with the same code; it calls `called`."""
    if thing.__code__ not in of_code:

        @wraps(thing)
        def stands_for_it(*args, **kwargs):
            return called.get()(*args, **kwargs)

        of_code[thing.__code__] = typed(thing, stands_for_it, typechecker)
    return of_code[thing.__code__]


def call_as(thing, checked, *args, **kwargs):
    """Call a checked function that several closures share, so that it runs `thing`."""
    before = called.set(thing)
    try:
        return checked(*args, **kwargs)
    finally:
        called.reset(before)


def jaxtyped(thing=None, *, typechecker=check):
    """Decorate a function or a dataclass so that the types of its arguments are checked."""
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
    shapes = has_shapes(thing)
    if not (shapes or THOROUGH):
        return thing
    if "<locals>" in thing.__qualname__:
        checked = partial(call_as, thing, within(thing, typechecker))
    else:
        checked = typed(thing, thing, typechecker)
    sizes = sizes_of_a_call if shapes else nullcontext()

    @wraps(thing)
    def run(*args, **kwargs):
        if unchecked():
            return thing(*args, **kwargs)
        with sizes:
            return checked(*args, **kwargs)

    return run


jaxtyping.jaxtyped = jaxtyped  # the first function that the hook meets imports this
