"""Mechanisms of papers, a file of at most 80 lines each: every one is better than what it is compared with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PAPERS = sorted((Path(__file__).resolve().parents[2] / "examples" / "papers").glob("*.py"))
MORE_IS_BETTER = {"saga_eviction"}
"""These compare hits; the others compare times, or shares of requests that came too late."""


@pytest.mark.slow
@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_the_trend_of_the_paper_is_there(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    usual, own, *bound = module.compare().values()
    if path.stem in MORE_IS_BETTER:
        assert own > usual
        assert all(own <= each for each in bound)
    else:
        assert own < usual


def test_ten_papers_five_of_them_of_2026() -> None:
    heads = [path.read_text(encoding="utf-8").splitlines()[0] for path in PAPERS]
    assert len(heads) >= 10
    assert len({head.split("(")[0] for head in heads if "2026" in head or "(26" in head}) >= 5
