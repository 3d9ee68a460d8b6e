"""How many GPUs a text gives to what it starts, and what a Slurm script asks for."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tokenyard.deploy.start_facts import Nodes, Said
from tokenyard.deploy.texts.data import at, items_at

_LINE = re.compile(r"^[ \t]*#SBATCH[ \t]+(-[^\n#]{1,400})", re.MULTILINE)
_COMMAND = re.compile(r"(?<![\w-])(?:srun|salloc|sbatch)[ \t]+(-[^\n|;&]{1,2000})")
_FOLDED = re.compile(r"\\[ \t]*\n[ \t]*")
_SHORT = re.compile(r"-\w")
_KIND = re.compile(r"[A-Za-z][\w.-]*")
_PER_NODE = ("--gres", "--gpus-per-node")
_OF_ALL = ("--gpus", "-G")
_MOST_MACHINES = 1 << 10


def gpus_of_service(service: Mapping[str, Any]) -> Said | None:
    """The number that Compose reserves for a service; None for all of them."""
    for each in items_at(service, "deploy", "resources", "reservations", "devices"):
        ids, count = at(each, "device_ids"), at(each, "count")
        if isinstance(ids, list) and ids:
            return Said(str(len(ids)), "device_ids of the service")
        if str(count).isdecimal():
            return Said(str(count), "count of the service's devices")
    return None


def gpu_of_slurm_command(text: str) -> str | None:
    """The kind of GPU that a command of Slurm's asks for (``srun --gres=gpu:a100:4 vllm serve ...``), as it says it."""
    for found in _COMMAND.finditer(_FOLDED.sub(" ", text)):
        kind, _ = _gpus_asked_for(_options_of(found[1].split()))
        if kind is not None:
            return kind
    return None


def _options_of(words: Sequence[str]) -> dict[str, str]:
    """The options in front of the program that a command starts, or of a line of a script."""
    options: dict[str, str] = {}
    rest = deque(words)
    while rest and rest[0].startswith("-"):
        name, has_value, value = rest.popleft().partition("=")
        if not has_value and _SHORT.match(name) and len(name) > 2:
            name, value = name[:2], name[2:]
        elif not has_value and rest and not rest[0].startswith("-"):
            value = rest.popleft()
        options.setdefault(name, value)
    return options


def _gpus_asked_for(options: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Their kind, and how many on each machine."""
    kind, gpus = None, None
    for name in (*_PER_NODE, *_OF_ALL):
        for each in options.get(name, "").split(","):
            what, *said = each.removeprefix("gres/").split(":") if name == "--gres" else ("gpu", *each.split(":"))
            if what != "gpu":
                continue
            kind = kind or next((part for part in said if _KIND.fullmatch(part)), None)
            if name in _PER_NODE and gpus is None:
                gpus = next((int(part) for part in said if part.isdecimal()), None)
    return kind, gpus


def machines_of_slurm(text: str) -> tuple[str | None, str | None, Nodes | None]:
    """The kind of GPU that ``#SBATCH`` lines ask for, as they name it, what they ask of a machine, and the machines."""
    options: dict[str, str] = {}
    for line in _LINE.findall(text):
        options = {**_options_of(line.split()), **options}
    kind, gpus = _gpus_asked_for(options)
    wanted = options.get("--constraint", options.get("-C"))
    nodes = options.get("--nodes", options.get("-N", "1"))
    machines = int(nodes) if nodes.isdecimal() and int(nodes) < _MOST_MACHINES else 1
    if machines == 1:
        return kind, wanted, None
    return kind, wanted, Nodes(machines, gpus, "--nodes of the Slurm script")
