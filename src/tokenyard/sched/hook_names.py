"""Hooks by their names: a method that is called almost as a hook is would never be called."""

from __future__ import annotations

from difflib import get_close_matches

from tokenyard.errors import ConfigError

__all__ = ["check_hook_names"]

_NEAR = 0.85
"""How alike two names are (difflib) of which one is the other, misspelt."""
_NO_HOOKS = frozenset(("bind", "context", "pins"))
"""Names that nobody overrides by mistake."""


def check_hook_names(kind: type, seam: str) -> None:
    """Raise ConfigError if the class defines a public name that only looks like a hook of the classes it derives from.

    ``seam`` is what it derives from, in words. Names of one's own begin with an underscore, or are farther from it.
    """
    ours = [base for base in kind.__mro__[1:] if base.__module__.startswith("tokenyard.")]
    known = {name for base in kind.__mro__[1:] for name in vars(base)}
    hooks = sorted({name for base in ours for name in vars(base) if not name.startswith("_")} - _NO_HOOKS)
    for name in vars(kind):
        if name.startswith("_") or name in known:
            continue
        near = get_close_matches(name, hooks, 1, _NEAR)
        if near:
            fix = f"is no hook, so nobody would call it: did you mean {near[0]}? (One of your own needs another name.)"
            raise ConfigError(seam, f"{kind.__qualname__}.{name}", fix)
