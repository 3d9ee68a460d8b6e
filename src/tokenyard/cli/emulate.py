"""``tokenyard emulate``: a vLLM server without a GPU, that behaves like the one that a command line would start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import fields
from typing import Any

from rich.markup import escape

from tokenyard.cli.support.console import errors, results
from tokenyard.cli.support.flags import EmulateCommand
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import MissingExtraError

_OF_DEPLOYMENT = ("gpu", "latency", "replicas", "router", "vllm_version")


def execute(flags: EmulateCommand) -> int:
    """Serve until a signal ends it; 0 then. Raises TokenyardError."""
    try:
        from tokenyard.serve.emulate.listening import Listening, bound_to  # noqa: PLC0415 - an extra
        from tokenyard.serve.emulate.recording import recorder_of  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "server") from None
    from tokenyard.serve.emulate.faults import read_fault  # noqa: PLC0415
    from tokenyard.serve.emulate.host import EmulateSettings, emulate  # noqa: PLC0415
    from tokenyard.serve.emulate.live import WallClock  # noqa: PLC0415

    began = time.monotonic()
    deployment = deployment_of(flags)
    settings = EmulateSettings(**{each.name: getattr(flags, each.name) for each in fields(EmulateSettings)})
    faults = [read_fault(text) for text in flags.fault]
    port = flags.port if flags.port is not None else deployment.settings.launch.asked.value("port")
    wall = WallClock(settings.speed)
    with ExitStack() as stack:
        first, number = 8000 if port is None else int(str(port)), 2 if settings.split else settings.servers
        ports = [first and first + i for i in range(number)]
        listeners = [stack.enter_context(closing(bound_to(flags.host, each))) for each in ports]
        recording = stack.enter_context(recorder_of(deployment, flags.trace, wall))
        emulation = stack.enter_context(closing(emulate(deployment, settings, observers=recording, wall=wall)))
        for line in emulation.start_log():
            results().print(escape(line), soft_wrap=True, highlight=False)

        def ready(urls: Sequence[str]) -> None:
            took, at = time.monotonic() - began, escape(", ".join(urls))
            results().print(f"Emulated server is ready at {at} after {took:.2f} s; Ctrl-C ends it.", soft_wrap=True)

        Listening(emulation, deployment, faults).serve(listeners, flags.host, ready)
        errors().print(f"[dim]{escape(emulation.engines.lateness.sentence)}[/]", soft_wrap=True)
    return 0


def deployment_of(flags: EmulateCommand) -> Deployment:
    """What is emulated. Raises ConfigError."""
    given: dict[str, Any] = {name: value for name in _OF_DEPLOYMENT if (value := getattr(flags, name)) is not None}
    if flags.ignore_unmodelled:
        given["ignore_unmodelled"] = True
    return Deployment(flags.serve, **given)
