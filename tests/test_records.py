"""Records: dataclasses that type checkers hold to be frozen."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from routelock._records import dataclass, maker, record, remaker


@record(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


def test_records_are_equal_and_hash_alike_when_they_say_the_same() -> None:
    assert Point(1) == Point(1, 0) != Point(2)
    assert len({Point(1), Point(1, 0)}) == 1


def test_a_record_is_a_dataclass() -> None:
    assert dataclasses.replace(Point(1), y=2) == Point(1, 2)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 0}


def test_a_record_has_no_place_for_anything_else() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True, slots=True)
class Line:
    start: Point
    end: Point | None = None
    names: list[str] = dataclasses.field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.start, Point):
            raise TypeError("start")


make_line = maker(Line)


def test_what_a_maker_makes_is_of_the_class_itself() -> None:
    made = make_line(start=Point(1), names=["a"])
    assert type(made) is Line
    assert made == Line(Point(1), names=["a"])
    assert hash(make_line(start=Point(1), names=())) == hash(Line(Point(1), names=()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [lambda line: setattr(line, "end", None), lambda line: delattr(line, "end")]
)
def test_what_a_maker_makes_is_frozen(change: Callable[[Line], None]) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        change(make_line(start=Point(1)))


def test_what_a_maker_makes_can_be_copied_and_replaced_like_any() -> None:
    made = make_line(start=Point(1))
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert dataclasses.replace(made, end=Point(2)) == Line(Point(1), Point(2))


def test_each_has_defaults_of_its_own() -> None:
    make_line(start=Point(1)).names.append("a")
    assert make_line(start=Point(1)).names == []


def test_a_maker_refuses_what_the_class_refuses() -> None:
    with pytest.raises(TypeError, match="start"):
        make_line(start="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        make_line()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        make_line(start=Point(1), middle=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_remade_changes_what_it_is_told_to() -> None:
    old = Line(Point(1), Point(2), names=["a"])
    assert remaker(Line)(old, end=None) == Line(Point(1), names=["a"])
    assert old.end == Point(2)


_Options = dict[str, bool]


def _kinds(make: Any, **options: bool) -> Any:
    """Make the same class with one of the two decorators."""

    @make(**options)
    class Kind:
        name: str
        secret: str = dataclasses.field(default="s", repr=False)
        aside: list[int] = dataclasses.field(default_factory=list, compare=False)
        unhashed: list[int] = dataclasses.field(default_factory=list, hash=False)

    return Kind


@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("kw_only", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"frozen": True}, {"eq": False}, {"repr": False}, {"frozen": True, "eq": False}],
    ids=str,
)
def test_a_dataclass_is_what_the_standard_library_makes(
    options: _Options, slots: bool, kw_only: bool
) -> None:
    ours, theirs = (_kinds(make, slots=slots, kw_only=kw_only, **options) for make in _BOTH)
    assert _behaviour(ours) == _behaviour(theirs)


_BOTH = (dataclass, dataclasses.dataclass)


def _behaviour(kind: Any) -> dict[str, object]:
    one, same, other = kind(name="a"), kind(name="a", aside=[1]), kind(name="b")
    return {
        "repr": repr(one).partition(" object at ")[0],
        "equal": [one == one, one == same, one == other, one != same, one == "a", one.__eq__("a")],
        "hashable": kind.__hash__ is not None,
        "hash alike": kind.__hash__ is not None and hash(one) == hash(kind(name="a", unhashed=[1])),
        "fields": [each.name for each in dataclasses.fields(kind)],
        "frozen": _refuses(one),
        "match": kind.__match_args__,
    }


def _refuses(made: Any) -> bool:
    try:
        made.name = "c"
    except dataclasses.FrozenInstanceError:
        return True
    return False


def test_methods_of_a_class_of_its_own_stay() -> None:
    @dataclass(frozen=True)
    class Own:
        name: str

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert Own("a") == Own("b")
    assert (hash(Own("a")), repr(Own("a"))) == (7, "own")


def test_what_is_not_equal_to_itself_is_so_within_a_dataclass_as_anywhere() -> None:
    assert Point(nan := float("nan")) == Point(nan)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_one_that_holds_itself_can_be_shown() -> None:
    line = Line(Point(1), names=[])
    line.names.append(line)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert repr(line) == "Line(start=Point(x=1, y=0), end=None, names=[...])"


@dataclass(slots=True, kw_only=True)
class Tally:
    name: str
    total: int = dataclasses.field(default=0, init=False)
    seen: list[str] = dataclasses.field(default_factory=list)
    late: str = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.late = self.name.upper()


make_tally = maker(Tally)


def test_a_maker_fills_in_what_is_no_argument() -> None:
    made = make_tally(name="a")
    assert type(made) is Tally
    assert (made.total, made.seen, made.late) == (0, [], "A")
    assert make_tally(name="b", seen=["c"]) == Tally(name="b", seen=["c"])
    with pytest.raises(TypeError):
        make_tally(name="a", total=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_what_is_not_frozen_can_be_changed_however_it_was_made() -> None:
    made = make_tally(name="a")
    made.total += 1
    assert made.total == 1


def test_an_error_says_which_maker_was_called() -> None:
    with pytest.raises(TypeError, match=r"make_Tally\(\)"):
        make_tally()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_what_is_not_to_be_checked_is_not() -> None:
    assert maker(Line, checked=False)(start=Point(1)) == Line(Point(1))
    assert maker(Line, checked=False)(start="x").start == "x"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
