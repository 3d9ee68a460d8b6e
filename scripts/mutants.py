#!/usr/bin/env python3
"""Mutation testing of the core: draws small changes of its modules by a seed, and asks whether the tests notice.

    python scripts/mutants.py [--number 150] [--seed 1] [--module core/kv/block_pool.py] [--json FILE] [--again FILE]

Every mutant is one change in one place: a comparison moved by one or turned round, ``and`` for ``or``, a condition
negated, a number one more, plus for minus, ``min`` for ``max``, a statement left out. It is killed when the module's
own tests fail (or take ten times as long as usual), else when the recorded decisions of vLLM are not met. Survivors are
printed with their line: either no behaviour differs, or a test is missing.

``--again FILE`` runs the survivors of an earlier ``--json FILE`` anew. Nothing is written into the repository.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

__all__ = ["Mutant", "mutants_of"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tokenyard"
TESTS = {
    "core/kv/block_pool.py": "unit/kv/test_pool.py unit/kv/test_prefix_lookup.py unit/kv/test_prompt_tails.py "
    "unit/sched/test_hooks.py "
    "unit/test_decision_profile.py",
    "core/kv/manager.py": "unit/kv/test_allocate_slots.py unit/kv/test_prefix_lookup.py unit/kv/test_grow_run.py "
    "unit/kv/test_hashed_prompts.py unit/kv/test_events.py unit/kv/test_mamba.py "
    "unit/kv/test_windowed.py unit/sched/test_admission.py unit/sched/test_plugins.py",
    "core/kv/hybrid.py": "unit/kv/test_windowed.py unit/kv/test_mamba.py unit/kv/test_circular.py "
    "unit/kv/test_cross_attention.py unit/kv/test_allocate_slots.py unit/kv/test_events.py "
    "unit/kv/test_prompt_tails.py unit/sched/test_alignment.py unit/sched/test_connector.py "
    "unit/test_decision_profile.py",
    "core/kv/hybrid_lookup.py": "unit/kv/test_windowed.py unit/kv/test_mamba.py unit/kv/test_circular.py "
    "unit/kv/test_prompt_tails.py unit/test_decision_profile.py regression/test_cache_hits.py",
    "core/rows.py": "unit/kv/test_pool.py unit/kv/test_allocate_slots.py unit/kv/test_grow_run.py "
    "unit/sched/test_output.py unit/sched/test_update.py",
    "core/sched/admission_limits.py": "unit/sched/test_admission.py unit/sched/test_connector.py unit/kv/test_mamba.py "
    "unit/sched/test_encoder_intake.py unit/sched/test_alignment.py unit/sched/test_speculation.py "
    "unit/sched/test_grammars.py unit/sched/test_hooks.py unit/sched/test_plugins.py unit/test_decision_profile.py",
    "core/sched/running.py": "unit/sched/test_running_pass.py unit/sched/test_waits.py unit/sched/test_speculation.py "
    "unit/sched/test_hooks.py unit/sched/test_plugins.py unit/sched/test_admission.py unit/policies/test_continuum.py "
    "unit/test_decision_profile.py",
    "core/sched/step.py": "unit/sched/test_output.py unit/sched/test_running_pass.py unit/sched/test_admission.py "
    "unit/sched/test_waits.py unit/sched/test_speculation.py unit/sched/test_finish.py "
    "unit/sched/test_times_and_stats.py unit/test_decision_profile.py",
    "core/sched/update.py": "unit/sched/test_update.py unit/sched/test_output.py unit/sched/test_finish.py "
    "unit/sched/test_times_and_stats.py unit/sched/test_executor_mistakes.py unit/sched/test_sessions.py "
    "unit/sched/test_extras.py unit/sched/test_repetition.py",
}
"""Module -> its own tests, below tests/."""
RECORDED = "parity/test_golden.py"
_LONGEST = 10
"""Times the usual: a mutant that takes longer goes round in a circle."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """A module with one change."""

    module: str
    line: int
    what: str
    source: str


class _Change(NamedTuple):
    line: int
    what: str
    make: Callable[[], None]
    undo: Callable[[], None]


def mutants_of(module: str) -> Iterator[Callable[[], Mutant]]:
    """Every mutant of a module of the package, to be made when it is drawn."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    for change in list(_changes(tree)):

        def made(change: _Change = change) -> Mutant:
            change.make()
            source = ast.unparse(tree)
            change.undo()
            return Mutant(module, change.line, change.what, source)

        yield made


def _changes(tree: ast.Module) -> Iterator[_Change]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in _decided_in(function):
                yield from _changes_of(node)


def _decided_in(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What a function does: no annotations, no messages of errors, and nothing that is only checked."""
    below: list[ast.AST] = [*function.body]
    while below:
        node = below.pop(0)
        if isinstance(node, ast.Assert | ast.Raise | ast.FunctionDef):
            continue
        yield node
        annotation = getattr(node, "annotation", None)
        children = [child for child in ast.iter_child_nodes(node) if child is not annotation]
        below += [each for each in children if not (isinstance(each, ast.keyword) and each.arg == "strict")]


def _changes_of(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        yield _set(node, "ops", [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]], "comparison")
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATIONS:
        yield _set(node, "op", _OPERATIONS[type(node.op)](), "operator")
    if isinstance(node, ast.BoolOp):
        yield _set(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And(), "and/or")
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield _set(node, "test", ast.UnaryOp(ast.Not(), node.test), "negated condition")
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield _set(node, "value", not node.value if isinstance(node.value, bool) else node.value + 1, "constant")
    if isinstance(node, ast.Name) and node.id in _CALLS:
        yield _set(node, "id", _CALLS[node.id], "min/max")
    for name in ("body", "orelse"):
        found = getattr(node, name, None)
        statements: list[ast.stmt] = found if isinstance(found, list) else []
        for i, each in enumerate(statements):
            leaves_out = isinstance(each, ast.Continue | ast.AugAssign) or (
                isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
            )
            if leaves_out:
                yield _set(node, name, [*statements[:i], ast.Pass(), *statements[i + 1 :]], "left out", each)


def _set(node: Any, name: str, new: Any, what: str, at: Any = None) -> _Change:
    old = getattr(node, name)
    text = ast.unparse(at or node).splitlines()[0]
    return _Change(
        (at or node).lineno, f"{what}: {text[:80]}", lambda: setattr(node, name, new), lambda: setattr(node, name, old)
    )


class _Copy:
    """The package beside the repository, in which one module at a time is exchanged."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "src"
        # Without what is compiled: it would run instead of the text that is exchanged.
        shutil.copytree(ROOT / "src", self._source, ignore=shutil.ignore_patterns("__pycache__", "static", "*.so"))
        self._usual: dict[str, float] = {}

    def passes(self, tests: str) -> bool:
        """Whether the tests pass, in at most ten times their usual time."""
        longest = max(20.0, _LONGEST * self._usual[tests]) if tests in self._usual else 600.0
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--no-header"]
        words += [str(ROOT / "tests" / each) for each in tests.split()]
        environment = {**os.environ, "PYTHONPATH": str(self._source), "PYTHONDONTWRITEBYTECODE": "1"}
        began = time.monotonic()
        try:
            done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, timeout=longest, check=False)
        except subprocess.TimeoutExpired:
            return False
        if tests not in self._usual:
            assert done.returncode == 0, f"{tests} fail without a mutant"
            self._usual[tests] = time.monotonic() - began
        return done.returncode == 0

    def survives(self, mutant: Mutant) -> bool:
        """Whether no test notices it."""
        path = self._source / "tokenyard" / mutant.module
        whole = path.read_text(encoding="utf-8")
        path.write_text(mutant.source, encoding="utf-8")
        try:
            return self.passes(TESTS[mutant.module]) and self.passes(RECORDED)
        finally:
            path.write_text(whole, encoding="utf-8")


def _drawn(flags: argparse.Namespace) -> list[Mutant]:
    if flags.again is not None:
        earlier = {tuple(each) for each in json.loads(flags.again.read_text(encoding="utf-8"))["survivors"]}
        everything = [made() for module in TESTS for made in mutants_of(module)]
        return [each for each in everything if each[:3] in earlier]
    makers = [made for module in flags.module or TESTS for made in mutants_of(module)]
    return [made() for made in Random(flags.seed).sample(makers, min(flags.number, len(makers)))]


def main() -> None:
    """Draw, run, and print killed and survived by module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", action="append", choices=TESTS)
    parser.add_argument("--minutes", type=float, default=60.0, help="draw no further mutant after so long")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--again", type=Path)
    flags = parser.parse_args()
    end = time.monotonic() + 60 * flags.minutes
    mutants = _drawn(flags)
    results: dict[str, list[int]] = {module: [0, 0] for module in TESTS}
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        copy = _Copy(Path(folder))
        for tests in {*(TESTS[each.module] for each in mutants), RECORDED}:
            copy.passes(tests)
        for mutant in mutants:
            if time.monotonic() > end:
                break
            survives = copy.survives(mutant)
            results[mutant.module][survives] += 1
            if survives:
                survivors.append((mutant.module, mutant.line, mutant.what))
                print(f"survived: {mutant.module}:{mutant.line}: {mutant.what}", flush=True)
    for module, (killed, survived) in results.items():
        print(f"{module:34} {killed:4} killed {survived:4} survived")
    total = sum(map(sum, results.values()))
    print(f"{total - len(survivors)} of {total} killed: {1 - len(survivors) / max(total, 1):.1%}")
    if flags.json is not None:
        flags.json.write_text(json.dumps({"results": results, "survivors": survivors}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
