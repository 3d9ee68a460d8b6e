"""Flags that take several names: ``--policies a,b``, ``--policies a b`` and ``--policy a --policy b`` are the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

_POLICIES = ("--policies", "--policy")


def names_in(texts: Iterable[str]) -> list[str]:
    """The names, however texts group them."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def with_one_policies(words: Sequence[str]) -> list[str]:
    """The words of `compare` with all names of policies in one flag.

    What names a workload or a file, and no policy, ends the list: it is what is compared. Behind a list with commas so
    does whatever is no policy that is known.
    """
    rest: list[str] = []
    names: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, sign, value = word.partition("=")
        if name not in _POLICIES:
            rest.append(word)
            continue
        found = [value] if sign else []
        while not sign and left and _lists_more(found, left[0]):
            found.append(left.pop(0))
        if not found:
            return list(words)  # a flag without a name: its reader says so
        names += found
    return [*rest, f"{_POLICIES[0]}={','.join(names_in(names))}"] if names else rest


def _lists_more(found: Sequence[str], word: str) -> bool:
    """Whether ``word`` names further policies."""
    if word.startswith("-"):
        return False
    from tokenyard.vocabulary import known_policies  # noqa: PLC0415 - only where policies are listed
    from tokenyard.workload.load import GENERATORS  # noqa: PLC0415 - the same

    known = known_policies()
    if not found or all(name in known or ".py:" in name for name in names_in([word])):
        return True
    is_compared = word in GENERATORS or os.path.exists(word)  # noqa: PTH110
    return not is_compared and "," not in found[-1]
