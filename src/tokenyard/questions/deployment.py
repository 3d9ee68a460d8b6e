"""The deployment that users get: the value, with the questions about it as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenyard.arguments import check_keywords
from tokenyard.deploy import deployment

if TYPE_CHECKING:
    from tokenyard.questions.planning.answer import Plan
    from tokenyard.questions.run import RunResult
    from tokenyard.questions.sweep import SweepResult
    from tokenyard.workload.record import Workload


class Deployment(deployment.Deployment):
    """What is served, on what, and how: settings by vLLM's names, an immutable value.

    ``Deployment("vllm serve Qwen/Qwen3-32B -tp 2", gpu="h100")`` reads a command line, or whatever ``--serve`` of the
    command takes: a file, a container's command, a manifest, a start-up log. ``Deployment(model="qwen3-32b",
    gpu="h100", max_num_seqs=64)`` says the same by name; names given beside a line override it. Settings that were not
    given are vLLM's defaults, or worked out by :meth:`resolve`. Secrets are replaced as they are read: no form of a
    deployment holds one.

    ``repr`` shows what was given, ``print`` also what it comes to. Deployments are equal if the same was given; they
    can be hashed, pickled, and written as JSON.
    """

    __slots__ = ()

    def replay(self, workload: str | Workload, **how: Any) -> RunResult:
        """:func:`tokenyard.run` of a workload on this deployment."""
        from tokenyard.questions.run import run  # noqa: PLC0415 - what only describes a deployment loads no replay

        check_keywords("Deployment.replay", run, how)
        return run(workload, self, **how)

    def plan(self, workload: str | Workload, **how: Any) -> Plan:
        """:func:`tokenyard.plan` of a workload, with this deployment as it is where the space says nothing else."""
        from tokenyard.questions.plan import plan  # noqa: PLC0415 - as above

        check_keywords("Deployment.plan", plan, how)
        return plan(workload, self, **how)

    def sweep(self, workload: str | Workload, space: Any = None, **how: Any) -> SweepResult:
        """:func:`tokenyard.sweep` of a workload over variants of this deployment."""
        from tokenyard.questions.sweep import sweep  # noqa: PLC0415 - as above

        check_keywords("Deployment.sweep", sweep, how)
        return sweep(workload, self, space, **how)
