"""``tokenyard workloads``: what ``run`` knows by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from rich.table import Table

from tokenyard.cli.support.console import print_json, results
from tokenyard.cli.support.flags import Workloads
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS
from tokenyard.models.named import MODELS
from tokenyard.policies.named import policy_maker
from tokenyard.vocabulary import SHIPPED, known_policies
from tokenyard.workload import FORMATS, GENERATORS
from tokenyard.workload.logs.kinds import LOGS

__all__ = ["execute"]

_GENERATORS: Mapping[str, str] = MappingProxyType(
    {
        "agentic": "Multi-turn coding agents: one shared system prompt, growing contexts, pauses while tools run",
        "chat": "Chats: a short shared system prompt, a few turns, a person who thinks between them",
        "completion": "Code completion: editors that ask at every pause while somebody types",
        "rag": "Retrieval-augmented questions: a shared instruction, a few retrieved passages, a short answer",
        "random": "Random lengths, as vllm bench serve --dataset-name random draws them",
    }
)


def execute(flags: Workloads) -> int:
    """Print every name with a sentence or its numbers; always 0."""
    generators = {name: _GENERATORS.get(name, "") for name in GENERATORS}
    formats = {name: _sentence(reader) for name, reader in FORMATS.items()}
    logs = {name: _sentence(reader) for name, reader in LOGS.items()}
    gpus = {gpu.name: f"{gpu.memory_bytes / 2**30:.0f} GiB" for gpu in GPUS.values()}
    models = {
        model.name: f"{model.num_parameters / 1e9:.1f} B parameters, context of {model.max_model_len:,} tokens"
        for model in MODELS.values()
    }
    policies = {name: _of_policy(name) for name in known_policies()}
    sections = {
        "workloads": generators,
        "formats": formats,
        "logs": logs,
        "policies": policies,
        "gpus": gpus,
        "models": models,
    }
    if flags.json:
        print_json(sections)
        return 0
    for title, names in sections.items():
        _print(title, names)
    return 0


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


def _print(title: str, names: dict[str, str]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True, min_width=14)
    table.add_column()
    for name, text in names.items():
        table.add_row(name, text)
    console = results()
    console.print(table)
    console.print()
