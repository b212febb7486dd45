"""Dataclasses that cost less: to make the classes, and to make objects of them.

`dataclass` is that of the standard library, and to a type checker nothing else. When the program runs, the
classes share their ``__eq__``, ``__hash__`` and ``__repr__``: Python 3.12 writes and compiles each of them
for each class, and for our ninety classes that was a fifth of the time that ``import interlock`` took.

``@record(frozen=True, ...)`` is for what is made several times a turn. To a type checker it is
``@dataclass(frozen=True, ...)``: nobody assigns to a field of one. When the program runs the guard is left
out: it makes an object cost three times as much (1.3 instead of 0.5 microseconds for eight fields), and
these objects were a quarter of what the loop costs. Equality and hashes are those of frozen dataclasses.
What is made once a run or less often stays frozen in earnest, and so does what the code of an app is given:
for those there is `maker`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import field, fields, make_dataclass
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, cast

__all__ = ["dataclass", "maker", "record", "remade"]

T = TypeVar("T")


def maker(frozen: type[T], *, checked: bool = True) -> type[T]:
    """Return what makes objects of a frozen dataclass in a third of the time that the class itself takes.

    Each begins as an object of a subclass without the guard, is filled, and then told that it is one of
    ``frozen``: what is handed out is as frozen as any, and has passed its ``__post_init__``, unless that is
    not to be ``checked``. The class has slots of its own; arguments go by name.
    """
    check = getattr(frozen, "__post_init__", None) if checked else None

    def close(self: Any) -> None:
        self.__class__ = frozen
        if check is not None:
            check(self)

    known = [
        (each.name, object, field(default=each.default, default_factory=cast(Any, each.default_factory)))
        for each in fields(cast(Any, frozen))
    ]
    fields_only = make_dataclass(
        "_", known, kw_only=True, repr=False, eq=False, namespace={"__post_init__": close}
    )
    fill = vars(fields_only)["__init__"]
    guardless = {
        "__module__": frozen.__module__,
        "__slots__": (),
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,  # both, or Python does not find that neither is guarded
        "__init__": fill,
        "__post_init__": close,
    }
    return cast("type[T]", type(frozen.__name__, (frozen,), guardless))


def remade(make: type[T], old: T, changes: Mapping[str, object]) -> T:
    """Return what `dataclasses.replace` does, by means of a `maker` and in a quarter of the time."""
    names: tuple[str, ...] = cast(Any, old).__slots__
    values: dict[str, Any] = dict(zip(names, _reader(names)(old), strict=True))
    values.update(changes)
    return make(**values)


@functools.cache
def _reader(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    return cast("Callable[[object], tuple[Any, ...]]", attrgetter(*names))


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
