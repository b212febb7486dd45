"""Dataclasses that cost less: to make the classes, and to make objects of them.

`dataclass` is that of the standard library, and to a type checker nothing else. When the program runs, the
classes share their ``__eq__``, ``__hash__`` and ``__repr__``: Python 3.12 writes and compiles each of them
for each class, and for our ninety classes that was a fifth of the time that ``import routelock`` took.

``@record(frozen=True, ...)`` is for what is made several times a turn. To a type checker it is
``@dataclass(frozen=True, ...)``: nobody assigns to a field of one. When the program runs the guard is left
out: it makes an object cost three times as much (1.3 instead of 0.5 microseconds for eight fields), and
these objects were a quarter of what the loop costs. Equality and hashes are those of frozen dataclasses.
What is made once a run or less often stays frozen in earnest, and so does a `Usage`, which counts money: for
those there is `maker`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, cast

__all__ = ["NEW_DICT", "NEW_LIST", "NEW_SET", "dataclass", "maker", "record", "remaker"]


NEW_LIST: Callable[[], list[Any]] = list

NEW_DICT: Callable[[], dict[Any, Any]] = dict

NEW_SET: Callable[[], set[Any]] = set

T = TypeVar("T")


def maker(kind: type[T], *, checked: bool = True) -> type[T]:
    """Return a function that makes objects of a dataclass in half of the time that the class itself takes.

    To call a class by names, Python puts the arguments into a dict and takes them out again; to call a
    function it need not. So this writes the function, as `dataclasses` writes ``__init__``: it takes the same
    arguments, all of them by name.

    Where the class is frozen it takes a third of the time: an object begins as one of a subclass without the
    guard, is filled, and then told that it is one of ``kind``. What is handed out is as frozen as any. It has
    passed its ``__post_init__``, unless that is not to be ``checked``. The class has slots of its own.
    """
    check = getattr(kind, "__post_init__", None) if checked else None
    arguments: list[str] = []
    known: dict[str, Any] = {"check": check}
    lines: list[str] = []
    for each in fields(cast(Any, kind)):
        argument, line, known[f"default_{each.name}"] = _source(each)
        arguments += [argument] * each.init
        lines.append(line)
    checks = ["check(made)"] * (check is not None)
    name = f"make_{kind.__name__}"
    return cast("type[T]", _written(name, f"*, {', '.join(arguments)}", kind, lines, checks, known))


def remaker(kind: type[T]) -> Callable[..., T]:
    """Return a function that does what `dataclasses.replace` does in a fifth of the time.

    It takes an object of ``kind``, and by name what is to be different. Nothing is checked.
    """
    names = [each.name for each in fields(cast(Any, kind))]
    arguments = ", ".join(f"{name}=same" for name in names)
    lines = [f"made.{name} = old.{name} if {name} is same else {name}" for name in names]
    known = {"same": object()}
    return cast(
        "Callable[..., T]",
        _written(f"remake_{kind.__name__}", f"old, *, {arguments}", kind, lines, [], known),
    )


def _written(
    name: str, arguments: str, kind: type[Any], fill: list[str], checks: list[str], known: dict[str, Any]
) -> object:
    """Return a function that makes an object, fills it and, if its class is frozen, freezes it."""
    guarded = cast(Any, kind).__setattr__ is not object.__setattr__
    begun = type(kind.__name__, (kind,), {"__module__": kind.__module__, **_NO_GUARD}) if guarded else kind
    known |= {"new": object.__new__, "begun": begun, "kind": kind}
    lines = ["made = new(begun)", *fill, *["made.__class__ = kind"] * guarded, *checks, "return made"]
    exec("\n ".join([f"def {name}({arguments}):", *lines]), known)
    return known[name]


def _source(each: Field[Any]) -> tuple[str, str, object]:
    """Return how a field is asked for and how it is filled, and what both call ``default_<name>``."""
    name, default = each.name, f"default_{each.name}"
    if each.default_factory is not MISSING:
        new = _LITERALS.get(each.default_factory, f"{default}()")
        value = f"{new} if {name} is {default} else {name}" if each.init else new
        return f"{name}={default}", f"made.{name} = {value}", each.default_factory
    if each.default is MISSING:  # what is no argument either is filled in by the check
        return name, f"made.{name} = {name}" if each.init else "pass", None
    return f"{name}={default}", f"made.{name} = {name if each.init else default}", each.default


_NO_GUARD: Mapping[str, Any] = {
    "__slots__": (),
    "__setattr__": object.__setattr__,
    "__delattr__": object.__delattr__,  # both, or Python does not find that neither is guarded
}

_LITERALS: Mapping[Any, str] = {list: "[]", dict: "{}"}


def _with_shared_methods(made: type[T], *, eq: bool, repr: bool, hashable: bool) -> type[T]:
    """Give a dataclass, made without them, the methods that are the same for all; its own ones stay."""
    every = fields(cast(Any, made))
    compared = [each.name for each in every if each.compare]
    hashed = [each.name for each in every if (each.compare if each.hash is None else each.hash)]

    def same(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return cast(bool, NotImplemented)
        return _values(self, compared) == _values(other, compared)

    def digest(self: Any) -> int:
        return hash(_values(self, hashed))

    own = vars(made)
    if eq and "__eq__" not in own:
        made.__eq__ = same  # type: ignore[method-assign]
    if repr and "__repr__" not in own:
        made.__repr__ = _shown  # type: ignore[method-assign]
    if eq and own.get("__hash__") is None:
        made.__hash__ = digest if hashable else None  # type: ignore[method-assign,assignment]
    return made


def _values(of: Any, names: list[str]) -> tuple[object, ...]:
    return tuple([getattr(of, name) for name in names])


@recursive_repr()
def _shown(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


if TYPE_CHECKING:
    from dataclasses import dataclass
    from dataclasses import dataclass as record  # by an assignment mypy would not know it again
else:

    def dataclass(
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
        repr: bool = True,
        unsafe_hash: bool = False,
    ) -> Callable[[type[T]], type[T]]:
        """Make a dataclass as `dataclasses.dataclass` does."""
        plain = dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, eq=False, repr=False)
        return lambda kind: _with_shared_methods(
            plain(kind), eq=eq, repr=repr, hashable=frozen or unsafe_hash
        )

    def record(*, frozen: bool, slots: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
        """Make a dataclass that is frozen to type checkers."""
        return dataclass(slots=slots, kw_only=kw_only, unsafe_hash=frozen)
