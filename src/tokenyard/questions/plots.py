"""Answers drawn with matplotlib, for notebooks; the drawings that need nothing else are SVG (``draw()``)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenyard.errors import MissingExtraError

if TYPE_CHECKING:
    from tokenyard.explain.table import RowTable


def axes(given: Any = None) -> Any:
    """The given axes of matplotlib, or new ones. MissingExtraError without matplotlib (extra ``plot``)."""
    if given is not None:
        return given
    try:
        return import_module("matplotlib.pyplot").subplots()[1]
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None


def plot_requests(title: str, requests: RowTable, ax: Any = None) -> Any:
    """Draw how many requests ran and waited over time. Returns the axes."""
    ax = axes(ax)
    came, ended = requests["arrival_s"], requests["until_s"]
    began = np.where(np.isnan(requests["first_scheduled_s"]), ended, requests["first_scheduled_s"])
    for what, first, last in (("running", began, ended), ("waiting for their first step", came, began)):
        moments = np.concatenate((first, last))
        order = np.argsort(moments, kind="stable")
        changes = np.concatenate((np.ones(len(first)), -np.ones(len(last))))
        ax.step(moments[order], np.cumsum(changes[order]), where="post", label=what)
    ax.set(title=title, xlabel="seconds", ylabel="requests")
    ax.legend()
    return ax
