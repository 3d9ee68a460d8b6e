"""What is known by name: workloads, formats, kinds of logs, policies, GPUs and models, each with a sentence."""

from __future__ import annotations

from importlib import import_module

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS
from tokenyard.models.named import MODELS
from tokenyard.policies.named import policy_maker
from tokenyard.units import GIB
from tokenyard.vocabulary import SHIPPED, known_policies
from tokenyard.workload.load import GENERATORS
from tokenyard.workload.logs.kinds import LOGS
from tokenyard.workload.readers.plain import FORMATS


def known_names() -> dict[str, dict[str, str]]:
    """Kind (``workloads``, ``formats``, ``logs``, ``policies``, ``gpus``, ``models``) -> name -> a sentence."""
    return {
        "workloads": {name: each.about for name, each in GENERATORS.items()},
        "formats": {name: each.about for name, each in FORMATS.items()},
        "logs": {name: each.about for name, each in LOGS.items()},
        "policies": {name: _of_policy(name) for name in known_policies()},
        "gpus": {gpu.name: f"{gpu.memory_bytes / GIB:.0f} GiB" for gpu in GPUS.values()},
        "models": {
            model.name: f"{model.num_parameters / 1e9:.1f} B parameters, context of {model.max_model_len:,} tokens"
            for model in MODELS.values()
        },
    }


def _of_policy(name: str) -> str:
    """What the class says, or the function that makes it; a broken one must not hide the others."""
    try:
        return _sentence(policy_maker(name)() if name not in SHIPPED else _load(SHIPPED[name]))
    except ConfigError as error:
        return error.fix


def _load(target: str) -> object:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _sentence(documented: object) -> str:
    """First line of a docstring."""
    return (documented.__doc__ or "").strip().partition("\n")[0].rstrip(".").replace("``", "")
