"""Requests that share the first step, however long they take to come: gathering ends with the last of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from tokenyard.core.request import Request
from tokenyard.serve.async_llm import StepThread

__all__ = ["gather_until"]


def gather_until(count: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have step threads gather until ``count`` requests were submitted; returns the seconds they are asked for."""
    submit, all_there = StepThread.submit, threading.Event()
    asked: list[float] = []
    left = [count]

    def submitted(thread: StepThread, requests: Sequence[Request]) -> None:
        submit(thread, requests)
        left[0] -= len(requests)
        if left[0] <= 0:
            all_there.set()

    def gathered(thread: StepThread, seconds: float) -> None:
        asked.append(seconds)
        assert all_there.wait(60), f"{left[0]} of {count} requests were never submitted"

    monkeypatch.setattr(StepThread, "submit", submitted)
    monkeypatch.setattr(StepThread, "gather", gathered)
    return asked
