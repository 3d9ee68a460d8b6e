"""``dataclass`` that is made quickly is the standard library's in all that one can see."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, get_type_hints

import pytest

from tokenyard.quick_dataclass import dataclass as quick

OPTIONS = [
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True},
    {"slots": True},
    {},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "kw_only": True, "repr": False},
]


@quick(frozen=True, slots=True, kw_only=True)
class Kept:
    """One that pickle finds."""

    size: int
    names: tuple[str, ...] = ()


def _point(decorator: Any, options: dict[str, bool]) -> Any:
    class Point:
        x: int
        y: list[int] = dataclasses.field(default_factory=list)
        name: str = "p"
        hidden: int = dataclasses.field(default=3, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "hidden", self.hidden + 1)

    return decorator(**options)(Point)


def _derived(decorator: Any, options: dict[str, bool]) -> Any:
    """The same, in part inherited from two classes."""

    class First:
        x: int

    class Listed(decorator(**options)(First)):  # type: ignore[misc]  # made here
        y: list[int] = dataclasses.field(default_factory=list)
        name: str = "n"

    class Point(decorator(**options)(Listed)):  # type: ignore[misc]
        name: str = "p"
        hidden: int = dataclasses.field(default=3, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "hidden", self.hidden + 1)

    return decorator(**options)(Point)


def both(options: dict[str, bool], made_by: Any = _point) -> tuple[Any, Any]:
    """The same class made by the library, and by ours."""
    return made_by(dataclasses.dataclass, options), made_by(quick, options)


@pytest.mark.parametrize("made_by", [_point, _derived])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_the_library_s_in_all_that_one_sees(options: dict[str, bool], made_by: Any) -> None:
    theirs, ours = both(options, made_by)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    named = {"y": [1], "name": "q", "hidden": 5}
    one, other = theirs(x=1, **named), ours(x=1, **named)
    shown, ours_shown = (repr(each).replace(" at 0x", "@").split("@")[0] for each in (one, other))
    assert ours_shown == shown
    assert [getattr(other, each.name) for each in dataclasses.fields(other)] == [1, [1], "q", 6]
    assert (ours(x=1) == ours(x=1)) is (theirs(x=1) == theirs(x=1))
    assert ours(x=1) != ours(x=2)
    assert ours(x=1).y is not ours(x=1).y
    assert dataclasses.replace(other, x=9, hidden=0).x == 9
    assert dataclasses.asdict(other) == dataclasses.asdict(one)
    assert ours.__match_args__ == theirs.__match_args__
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    for kind in (theirs, ours):
        with pytest.raises(TypeError):
            kind()
        with pytest.raises(TypeError):
            kind(x=1, z=2)
    parameters = ("init", "repr", "eq", "frozen")
    assert [getattr(ours.__dataclass_params__, each) for each in parameters] == [
        getattr(theirs.__dataclass_params__, each) for each in parameters
    ]


@pytest.mark.parametrize("made_by", [_point, _derived])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_field_is_assigned_only_where_the_library_lets_it(options: dict[str, bool], made_by: Any) -> None:
    for kind in both(options, made_by):
        made = kind(x=1)
        if options.get("frozen"):
            with pytest.raises(dataclasses.FrozenInstanceError):
                made.x = 2
            with pytest.raises(dataclasses.FrozenInstanceError):
                del made.x
        else:
            made.x = 2
            assert made.x == 2


def test_init_is_made_once_and_when_it_is_asked_for() -> None:
    kind = both({"frozen": True})[1]
    kept = vars(kind)["__init__"]
    assert not inspect.isfunction(kept)
    made = kind.__init__
    assert (made.__name__, made.__qualname__, made.__module__) == (
        "__init__",
        f"{kind.__qualname__}.__init__",
        __name__,
    )
    assert vars(kind)["__init__"] is made
    other = both({"slots": True})[1](1, name="q")
    assert inspect.isfunction(vars(type(other))["__init__"])
    other.__init__(2)
    assert (other.x, other.name) == (2, "p")


def test_hashes_and_copies_and_pickles() -> None:
    one = Kept(size=3, names=("a",))
    assert {one: 1}[Kept(size=3, names=("a",))] == 1
    assert copy.copy(one) == one == pickle.loads(pickle.dumps(one))
    with pytest.raises(TypeError, match="unhashable"):
        hash(both({"slots": True})[1](x=1))


def test_methods_of_its_own_stay() -> None:
    def own(decorator: Any) -> Any:
        class Own:  # noqa: PLW1641 - the decorator makes its hash
            a: int

            def __eq__(self, other: object) -> bool:
                return isinstance(other, type(self))

            def __repr__(self) -> str:
                return "own"

        return decorator(frozen=True)(Own)

    for kind in map(own, (dataclasses.dataclass, quick)):
        assert (kind(1) == kind(2), repr(kind(1)), hash(kind(1)) == hash(kind(1))) == (True, "own", True)


def test_what_derives_from_one() -> None:
    @quick(frozen=True, slots=True, kw_only=True)
    class More(Kept):
        extra: int = 1

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Users(Kept):
        own: int = 2

    @dataclasses.dataclass(frozen=True)
    class Named(Users):
        def __repr__(self) -> str:
            return f"<{self.own}>"

    assert repr(More(size=2)).endswith("More(size=2, names=(), extra=1)")
    assert More(size=2) != Kept(size=2)
    assert dataclasses.replace(Users(size=1), own=5).own == 5
    assert repr(Named(size=1)) == "<2>"
    with pytest.raises(TypeError, match="frozen"):
        quick(type("Loose", (Kept,), {"__annotations__": {"a": int}}))


def test_one_that_derives_from_another_guards_the_fields_of_both() -> None:
    @quick(frozen=True, slots=True, kw_only=True)
    class More(Kept):
        extra: int = 1

    one = More(size=1)
    for name in ("size", "extra"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(one, name, 2)
    assert (one, hash(one)) == (More(size=1), hash(More(size=1)))
    assert one != Kept(size=1)
    assert copy.copy(one) == one


def test_a_field_that_is_not_given_is_the_library_s() -> None:
    @quick(frozen=True)
    class Counted:
        size: int
        twice: int = dataclasses.field(init=False, default=4)

    assert (Counted(2).twice, str(inspect.signature(Counted))) == (4, "(size: 'int') -> None")


def test_hints_and_names_are_those_of_its_module() -> None:
    assert get_type_hints(Kept.__init__)["names"] == tuple[str, ...]
    for name in ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__"):
        method = vars(Kept)[name]
        assert (method.__name__, method.__qualname__, method.__module__) == (name, f"Kept.{name}", __name__)


def test_one_that_holds_itself_is_shown() -> None:
    @quick(slots=True)
    class Ring:
        rest: list[object] = dataclasses.field(default_factory=list)

    ring = Ring()
    ring.rest.append(ring)
    assert repr(ring).endswith("Ring(rest=[...])")


def test_without_a_field() -> None:
    @quick(frozen=True, slots=True)
    class Nothing:
        pass

    assert (Nothing() == Nothing(), hash(Nothing()) == hash(Nothing())) == (True, True)
    assert repr(Nothing()).endswith("Nothing()")
