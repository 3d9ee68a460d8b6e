#!/usr/bin/env python3
"""Print the page `regressions.md` of the site: threads of vLLM's users, and the test that builds each situation."""

from __future__ import annotations

from pathlib import Path

from generate_parity_map import tables

__all__ = ["document"]

THREADS = Path(__file__).resolve().parents[1] / "tests" / "regression" / "threads.tsv"
HEAD = """\
# What users of vLLM reported, built as tests

Each line is a thread of [vllm-project/vllm](https://github.com/vllm-project/vllm) that concerns the scheduler. The test
builds the situation and checks that the scheduler neither hangs nor crashes nor miscounts. Where the thread itself was
not at hand, the test builds the situation of its class, and the line says so. `pytest tests/regression` runs them.
"""


def document() -> str:
    """The page."""
    return "\n".join([HEAD, *tables(THREADS)])


if __name__ == "__main__":
    print(document())
