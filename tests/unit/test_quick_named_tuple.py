"""A ``NamedTuple`` that is made quickly is the standard library's in all that one can see."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from typing import Any, get_type_hints

import msgspec
import pytest

from tokenyard.quick_named_tuple import NamedTuple


class Kept(NamedTuple):
    """One that pickle finds."""

    size: int
    names: tuple[str, ...] = ()

    @property
    def num_names(self) -> int:
        return len(self.names)

    @classmethod
    def empty(cls) -> Kept:
        return cls(0)


class Derived(Kept):
    """One of its own class."""


class Theirs(typing.NamedTuple):
    """One that pickle finds."""

    size: int
    names: tuple[str, ...] = ()

    @property
    def num_names(self) -> int:
        return len(self.names)

    @classmethod
    def empty(cls) -> Theirs:
        return cls(0)


class Undescribed(NamedTuple):
    first: str
    second: str


class Empty(NamedTuple):
    """No field at all."""


def _seen(kind: Any) -> list[object]:
    """What one sees of a class and of its objects."""
    one = kind(3, names=("a",))
    return [
        [str(each).replace("ForwardRef(", "").replace(")", "") for each in inspect.signature(kind).parameters.values()],
        kind.__doc__,
        kind.__bases__,
        kind.__slots__,
        kind.__match_args__,
        kind._fields,
        kind._field_defaults,
        type(kind),
        get_type_hints(kind),
        inspect.getdoc(kind.size),
        kind.__new__.__doc__.replace("Theirs", "Kept"),
        repr(one).replace("Theirs", "Kept"),
        one == (3, ("a",)),
        hash(one) == hash((3, ("a",))),
        one._asdict(),
        one._replace(size=4),
        kind._make([5, ()]),
        kind.empty(),
        kind(size=1).num_names,
        one[1:],
        copy.copy(one),
        copy.deepcopy(one),
        msgspec.json.encode(one),
        msgspec.json.decode(b"[1]", type=kind),
        sorted(set(dir(kind)) - {"__orig_bases__"}),
    ]


def test_it_is_the_library_s_in_all_that_one_sees() -> None:
    assert _seen(Kept) == _seen(Theirs)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", [Kept, Derived])
def test_pickle_makes_the_same_object(kind: type[Kept], protocol: int) -> None:
    again = pickle.loads(pickle.dumps(kind(2, ("x", "y")), protocol))
    assert type(again) is kind
    assert again == (2, ("x", "y"))


def test_one_that_derives_is_made_whichever_is_made_first() -> None:
    class First(NamedTuple):
        x: int = 1

    class Second(First):
        pass

    assert type(Second(2)) is Second
    assert type(First()) is First
    assert type(Second._make([3])) is Second
    assert repr(Second(3)) == "Second(x=3)"


def test_new_is_no_method_of_an_object() -> None:
    class One(NamedTuple):
        x: int

    one: Any = One(1)
    assert isinstance(vars(One)["__new__"], staticmethod)
    assert one.__new__(One, 2) == (2,)


def test_a_class_without_a_docstring_is_described_by_its_fields() -> None:
    assert Undescribed.__doc__ == "Undescribed(first, second)"
    assert Empty() == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3),
        lambda kind: kind(1, other=2),
        lambda kind: kind._make([1]),
        lambda kind: kind(1)._replace(other=2),
        lambda kind: setattr(kind(1), "size", 2),
    ],
)
def test_what_the_library_refuses_is_refused(wrong: Any) -> None:
    raised = []
    for kind in (Kept, Theirs):
        with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
            wrong(kind)
        raised.append((caught.type, str(caught.value).replace("Theirs", "Kept")))
    assert raised[0] == raised[1]


def test_a_default_stands_before_no_field_without_one() -> None:
    with pytest.raises(TypeError, match="without a default"):

        class Wrong(NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]


def test_a_match_takes_it_apart() -> None:
    match Kept(1, ("n",)):
        case Kept(size, names):
            assert (size, names) == (1, ("n",))
