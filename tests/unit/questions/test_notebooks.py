"""Conveniences of notebooks: defaults, rows of tables, completion, drawings, and keywords that type checkers know."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import generate_keywords
import tokenyard as ty
from tokenyard.deploy import keywords
from tokenyard.errors import MissingExtraError
from tokenyard.explain.table import RowTable

FEW: dict[str, Any] = {"num_prompts": 6, "input_len": 32, "output_len": 4}


@pytest.fixture(scope="module")
def found() -> ty.RunResult:
    return ty.run("random", **FEW)


def test_a_run_has_the_defaults_of_the_command(found: ty.RunResult) -> None:
    assert found.result.num_finished == 6
    assert found.to_dict() == ty.Deployment().replay("random", **FEW).to_dict()


def test_rows_are_taken_by_slices_numbers_and_names(found: ty.RunResult) -> None:
    table = found.requests
    assert table.shape == (6, len(table.columns))
    assert table[:2]["request_id"].tolist() == table["request_id"][:2].tolist() == table.head(2)["request_id"].tolist()
    assert len(table.head()) == 5
    assert table[-1] == list(table)[5]
    assert np.array_equal(table.ttft_ms, table["ttft_ms"])  # type: ignore[attr-defined]
    assert {"ttft_ms", "head", "shape"} <= set(dir(table))
    with pytest.raises(IndexError):
        table[6]
    with pytest.raises(AttributeError, match="no attribute and no column 'tftt_ms'"):
        table.tftt_ms  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(RowTable("none", {}), "_repr_mimebundle_")


def test_completion_offers_public_names_only() -> None:
    shown = {name for name in dir(ty) if not name.startswith("__")}
    inside = {place.removeprefix("tokenyard.") for place in ty.NAMESPACES}
    assert shown == {*ty.__all__, *inside} - {"__version__"}


def test_keywords_are_those_of_the_settings() -> None:
    for path, text in generate_keywords.generated_files().items():
        assert path.read_text(encoding="utf-8") == text, "scripts/generate_keywords.py writes it"
    assert {"max_num_seqs", "gpu", "enforce_eager"} <= set(keywords.DeploymentKeywords.__annotations__)


@pytest.mark.slow
def test_a_misspelt_keyword_is_an_error_for_a_type_checker(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(
        "import tokenyard as ty\n"
        "ty.Deployment(max_num_seqs=3, enforce_eager=True)\n"
        "ty.Deployment(max_num_seq=3)\n"
        "ty.run('chat', limits=3)\n"
    )
    source = Path(ty.__file__).parents[1]
    flags = ["--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), "--config-file", ""]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(source))
        said, _, _ = api.run([str(program), *flags])
    assert '3: error: Unexpected keyword argument "max_num_seq" for "Deployment"; did you mean' in said
    assert '4: error: Unexpected keyword argument "limits" for "run"; did you mean "limit"' in said
    assert "2: error" not in said


def test_answers_are_drawn(found: ty.RunResult) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    planned = ty.plan("random", space={"max_num_seqs": [1, 4]}, largest_load=False, **FEW)
    studied = ty.study("random", ty.Deployment(), loads=[1, 2], **FEW)
    for drawn, label in ((found, "requests"), (planned, planned.goal), (studied, "ttft_ms.p99")):
        ax = figures.Figure().subplots()
        same = drawn.plot("ttft_ms.p99", ax) if drawn is studied else drawn.plot(ax)
        assert same is ax
        assert label in ax.get_ylabel() or drawn is planned
        assert ax.has_data()


def test_what_is_not_installed_is_named_with_its_extra(found: ty.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tokenyard\[plot\]'"):
        found.plot()
