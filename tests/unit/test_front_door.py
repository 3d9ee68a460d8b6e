"""The front door: which names users may rely on, that each is there and documented, and that asking costs little."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import tokenyard
from public_names import PUBLIC, SECTIONS, public_names
from tokenyard.core import RepetitionDetectionParams, StructuredOutput
from tokenyard.core.kv.hashing import PrefixHash
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs, ModelOutput
from tokenyard.deploy.keywords import DeploymentKeywords
from tokenyard.questions import Plan, SweepResult
from tokenyard.questions.keywords import TrafficKeywords
from tokenyard.sim import EndedBy

OFFERED = {"tokenyard": tuple(tokenyard.__all__), **{each: public_names(each) for each in tokenyard.NAMESPACES}}
NAMES = Path(__file__).with_name("public_names.txt")
LAZY = [name for name in OFFERED if hasattr(import_module(name), "OFFERED")]


def test_a_name_has_one_place() -> None:
    everywhere = [name for names in OFFERED.values() for name in names]
    assert sorted(everywhere) == sorted(set(everywhere))


def test_a_name_that_comes_or_goes_is_seen() -> None:
    """``TOKENYARD_UPDATE_NAMES=1`` writes the file; a name that went is a line of CHANGELOG.md."""
    names = "".join(f"{place}.{name}\n" for place, names in OFFERED.items() for name in sorted(names))
    if os.environ.get("TOKENYARD_UPDATE_NAMES"):
        NAMES.write_text(names, encoding="utf-8")
    assert NAMES.read_text(encoding="utf-8") == names


def _wrong_with(place: str, name: str) -> str | None:
    offered = getattr(import_module(place), name, None)
    if name == "__version__":
        return None if offered == version("tokenyard") else f"is {offered}, and the package {version('tokenyard')}"
    if not (inspect.isclass(offered) or inspect.isfunction(offered)):
        return f"is neither a class nor a function but {offered!r}"
    if offered.__name__ != name:
        return f"calls itself {offered.__name__}"
    return None if inspect.getdoc(offered) else "has no docstring"


def test_every_offered_name_is_there_and_documented() -> None:
    found = {f"{place}.{name}": _wrong_with(place, name) for place, names in OFFERED.items() for name in names}
    assert len(found) > 200
    wrong = [f"{name} {problem}" for name, problem in found.items() if problem is not None]
    assert not wrong, "\n".join(wrong)


def test_a_name_that_is_not_there_is_found() -> None:
    assert _wrong_with("tokenyard", "NoSuchName") == "is neither a class nor a function but None"
    assert _wrong_with("tokenyard", "errors") is not None, "a module is no name to offer"


@pytest.mark.parametrize("place", LAZY)
def test_what_is_loaded_and_what_type_checkers_see_are_the_same(place: str) -> None:
    package = import_module(place)
    assert package.__file__ is not None
    imports = [
        node for node in ast.parse(Path(f"{package.__file__}i").read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    seen = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    groups = package.OFFERED.values()
    assert seen == {name: (module, name) for group in groups for module, names in group.items() for name in names}
    assert set(seen) == set(package.__all__)
    assert set(seen) <= set(dir(package))


SEEN_ONLY = {"Goodput", "Outcomes", "FirstDifference", "VersionDifference", "Moved", "SwitchTurned"} | (
    {"BoundRange", "Sureness", "DecisionCheck", "StalledStep", "TracePrediction", "NotAnswered"}
    | {"RecordedDrafts", "Stall", "LoadState"}
    | {"DeploymentKeywords", "TrafficKeywords"}
    | {"StepNews", "Stepper", "Generation", "Watch"}
    | {"KVCacheManager", "EncoderCache", "CallState", "ObserverGate"}
    | {"ComputedBlocks", "PrefixHash", "Row", "Rows", "StepBlocks", "StepWork", "TokenRow"}
    | {
        "ToolCallEstimator",
        "QueueingDelay",
        "Memoryfulness",
        "DeploymentHeader",
        "LayerSpec",
        "EncoderSpec",
        "WeightFormat",
        "ChatTemplate",
        "QueueOrder",
        "TorchExecutor",
        "GivenFlags",
        "Assumption",
        "AssumedAcceptance",
        "Check",
        "Errors",
        "Quantity",
        "FigureAnswer",
        "FitQuality",
        "AchievableBound",
        "KVCachePlan",
        "KnownError",
        "LargestLoad",
        "Mover",
        "ReasonAnswer",
        "RowsOfEngine",
        "ServedSplit",
        "ResolvedSettings",
    }
)
"""Parts of a scheduler, a request, CONTINUUM, a report, a model or an answer that are there to be looked at."""
OF_TRACES = {"Traces", "Answers from traces"}
"""What these lead to is read as attributes, and not made by users."""


_UNDER_TYPE_CHECKING = {
    **{each.__name__: each for each in (Request, ModelOutput, EngineOutputs)},
    "PrefixHash": PrefixHash,
    "StructuredOutput": StructuredOutput,
    "EndedBy": EndedBy,
    "Mapping": Mapping,
    "RepetitionDetectionParams": RepetitionDetectionParams,
    "Workload": tokenyard.Workload,
    "RunResult": tokenyard.RunResult,
    "SweepResult": SweepResult,
    "Plan": Plan,
    "DeploymentKeywords": DeploymentKeywords,
    "TrafficKeywords": TrafficKeywords,
}
"""What modules know for their type checker only, or a class on which one of another module is built."""


def _annotations(offered: object) -> Iterator[object]:
    """Types of the public fields, properties and parameters of a class or function."""
    if not inspect.isclass(offered):
        yield from get_type_hints(offered, None, _UNDER_TYPE_CHECKING).values()
        return
    yield from (
        hint for name, hint in get_type_hints(offered, None, _UNDER_TYPE_CHECKING).items() if not name.startswith("_")
    )
    for name, member in inspect.getmembers(offered):
        found = member.fget if isinstance(member, property) else getattr(member, "func", member)
        made = getattr(found, "__func__", found)
        is_public = name == "__init__" or not name.startswith("_")
        if is_public and inspect.isfunction(made) and made.__module__.startswith("tokenyard."):
            known = vars(sys.modules[made.__module__]) | vars(sys.modules[offered.__module__]) | _UNDER_TYPE_CHECKING
            yield from get_type_hints(made, known).values()


def _ours(annotation: Any) -> Iterator[type]:
    """Classes of the package in an annotation."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("tokenyard."):
        yield annotation
    for part in get_args(annotation):
        for each in part if isinstance(part, list | tuple) else [part]:
            yield from _ours(each)


def _is_offered(kind: type) -> bool:
    """Whether the public class of this name is it, or derived from it."""
    offered = PUBLIC.get(kind.__name__)
    return offered is kind or (inspect.isclass(offered) and issubclass(offered, kind))


def test_whatever_signatures_name_can_be_imported_from_a_public_place() -> None:
    public = {name: value for heading, names in SECTIONS if heading not in OF_TRACES for name, value in names.items()}
    del public["__version__"]
    private = {
        f"{name}: {each.__name__}"
        for name, offered in public.items()
        for annotation in _annotations(offered)
        for each in _ours(annotation)
        if not _is_offered(each) and each.__name__ not in SEEN_ONLY
    }
    assert private == set()


def test_any_other_name_is_refused_and_submodules_still_import() -> None:
    with pytest.raises(AttributeError, match="module 'tokenyard' has no attribute 'Schedulr'"):
        tokenyard.Schedulr  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'tokenyard\.connectors' has no attribute 'Mtch'"):
        import_module("tokenyard.connectors").Mtch  # noqa: B018
    for name, place in (("ConstantLatency", "sim"), ("WorkloadError", "errors"), ("Plan", "questions")):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}': it is tokenyard\.{place}\.{name}$"):
            getattr(tokenyard, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'sys'$"):
        tokenyard.sys  # type: ignore[attr-defined]  # noqa: B018
    from tokenyard import errors  # noqa: PLC0415

    assert errors.TokenyardError is tokenyard.TokenyardError


def test_packages_with_names_of_their_own_are_there_without_an_import() -> None:
    program = "import tokenyard; print(tokenyard.connectors.Match(4), tokenyard.serve.PauseMode.KEEP)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "Match(num_tokens=4, is_async=False) keep\n"


@pytest.mark.parametrize(
    ("asked", "stays_out"),
    [
        ("", "numpy msgspec rich typing tokenyard.errors"),
        ("tokenyard.__version__", "numpy msgspec rich tokenyard.cli"),
        (
            "tokenyard.TraceReader, tokenyard.report",
            "rich tokenyard.cli tokenyard.core.sched tokenyard.core.kv",
        ),
        ("tokenyard.connectors", "numpy msgspec rich tokenyard.core.sched tokenyard.core.kv"),
        ("tokenyard.Scheduler", "rich tokenyard.cli tokenyard.sim tokenyard.explain"),
    ],
)
def test_what_is_not_asked_for_is_not_loaded(asked: str, stays_out: str) -> None:
    program = f"""
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
before = set(sys.modules)
import tokenyard
{asked}
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tokenyard" in loaded
    assert not loaded & set(stays_out.split())


@pytest.mark.parametrize("former", ["ParallelResult", "SplitResult"])
def test_a_former_name_is_offered_with_a_warning(former: str) -> None:
    with pytest.warns(DeprecationWarning, match="ReplayResult now"):
        assert getattr(tokenyard.sim, former) is tokenyard.sim.ReplayResult
