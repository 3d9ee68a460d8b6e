"""``tokenyard emulate``: a vLLM server without a GPU, that behaves like the one that a command line would start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.markup import escape

from tokenyard.cli.support.console import errors, results
from tokenyard.cli.support.flags.serving import EmulateCommand
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import MissingExtraError

_OF_DEPLOYMENT = ("gpu", "latency", "replicas", "autoscale", "router", "vllm_version")


def execute(flags: EmulateCommand) -> int:
    """Serve until a signal ends it; 0 then. Raises TokenyardError."""
    began = time.monotonic()
    try:
        from tokenyard.serve.emulate.listening import serve_emulated  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "server") from None

    def start(lines: Sequence[str]) -> None:
        for line in lines:
            results().print(escape(line), soft_wrap=True, highlight=False)

    def ready(urls: Sequence[str]) -> None:
        took, at = time.monotonic() - began, escape(", ".join(urls))
        results().print(f"Emulated server is ready at {at} after {took:.2f} s; Ctrl-C ends it.", soft_wrap=True)

    lateness = serve_emulated(
        emulated_deployment(flags),
        replace(flags.emulation, max_late_s=flags.max_late_s),
        host=flags.host,
        port=flags.port,
        trace=flags.trace,
        faults=flags.fault,
        on_start=start,
        on_ready=ready,
    )
    errors().print(f"[dim]{escape(lateness)}[/]", soft_wrap=True)
    return 0


def emulated_deployment(flags: EmulateCommand) -> Deployment:
    """What is emulated. Raises ConfigError."""
    given: dict[str, Any] = {name: value for name in _OF_DEPLOYMENT if (value := getattr(flags, name)) is not None}
    if flags.ignore_unmodelled:
        given["ignore_unmodelled"] = True
    return Deployment(flags.serve, **given)
