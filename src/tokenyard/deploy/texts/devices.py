"""How many GPUs a text gives to what it starts, and what a Slurm script asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tokenyard.deploy.texts.said import Nodes, Said

_OPTION = re.compile(r"^[ \t]*#SBATCH[ \t]+(--?[\w-]{1,40})(?:[ \t=]+|(?<=-\w))(\S{1,200})", re.MULTILINE)
_PER_NODE = ("--gres", "--gpus-per-node")
_OF_ALL = ("--gpus", "-G")
_MOST_MACHINES = 1 << 10


def gpus_of_service(service: Mapping[str, Any]) -> Said | None:
    """The number that Compose reserves for a service; None for all of them."""
    devices: Any = service.get("deploy")
    for name in ("resources", "reservations", "devices"):
        devices = devices.get(name) if isinstance(devices, Mapping) else None
    for each in devices if isinstance(devices, list) else ():
        ids, count = (each.get(name) for name in ("device_ids", "count")) if isinstance(each, Mapping) else (None, None)
        if isinstance(ids, list) and ids:
            return Said(str(len(ids)), "device_ids of the service")
        if str(count).isdecimal():
            return Said(str(count), "count of the service's devices")
    return None


def machines_of_slurm(text: str) -> tuple[str | None, Nodes | None]:
    """The kind of GPU that ``#SBATCH`` lines ask for, as they name it, and the machines."""
    options: dict[str, str] = {}
    for name, value in _OPTION.findall(text):
        options.setdefault(name, value)
    kind, gpus = None, None
    for name in (*_PER_NODE, *_OF_ALL):
        parts = options.get(name, "").removeprefix("gres/").split(":")
        if name == "--gres" and parts[0] != "gpu":
            continue
        said = parts[1:] if name == "--gres" else parts
        kind = kind or next((each for each in said if each and not each.isdecimal()), None)
        if name in _PER_NODE and gpus is None:
            gpus = next((int(each) for each in said if each.isdecimal()), None)
    kind = kind or options.get("--constraint", options.get("-C"))
    nodes = options.get("--nodes", options.get("-N", "1"))
    machines = int(nodes) if nodes.isdecimal() and int(nodes) < _MOST_MACHINES else 1
    if machines == 1:
        return kind, None
    return kind, Nodes(machines, gpus, "--nodes of the Slurm script")
