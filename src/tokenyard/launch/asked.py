"""What somebody asked of vLLM: flags of the command line, of a pasted line and of a file, by what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenyard.errors import NoStartError, NotModelledError
from tokenyard.launch.flag import Effect, GivenFlag
from tokenyard.launch.texts.started import Found
from tokenyard.launch.variables import OBEYED

__all__ = ["Asked"]

_OF_THE_PLACE = ("CUDA_VISIBLE_DEVICES", "HF_", "HUGGING", "NCCL_DEBUG", "VLLM_LOGGING", "VLLM_API_KEY", "PYTHON")
"""Beginnings of variables that change nothing in a replay."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Flags and variables, as they were given; a later flag has taken the place of an earlier one."""

    given: tuple[GivenFlag, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that stand in front of a pasted line."""
    named: frozenset[str] = frozenset()
    """Settings that somebody gave, ours included, as fields are called: ``max_num_seqs``, ``gpu``."""
    found: tuple[Found, ...] = ()
    """What a pasted text says beside flags (its version, GPU, replicas), and what was made of it."""
    logged_kv_tokens: int | None = None
    """"GPU KV cache size" of a start-up log, in tokens."""
    logged: frozenset[str] = frozenset()
    """Settings that a start-up log told, and that hold for the deployment that wrote it alone."""

    def of(self, effect: Effect) -> list[GivenFlag]:
        """The flags of one class, in their order."""
        return [each for each in self.given if each.effect is effect]

    @property
    def not_modelled(self) -> list[GivenFlag]:
        """Flags that change something which a replay does not know; those with a value that changes nothing aside."""
        return [each for each in self.of(Effect.NOT_MODELLED) if not each.changes_nothing]

    @property
    def without_effect(self) -> list[str]:
        """Each with its reason, as a header lists them."""
        idle = [each for each in self.of(Effect.NOT_MODELLED) if each.changes_nothing]
        said = [f"{each}: {each.flag.why}" for each in self.of(Effect.NO_EFFECT)]
        return said + [f"{each}: as without it" for each in idle]

    def ignored(self, version: str) -> list[str]:
        """What would change something and does not here, each with what it would change."""
        said = [f"{each}: {each.flag.why}" for each in self.not_modelled]
        return said + [
            f"{name}={value}: variables of the environment are not modelled"
            for name, value in self.environment.items()
            if not name.startswith(_OF_THE_PLACE) and _looks_like_vllm(name) and version not in OBEYED.get(name, ())
        ]

    def require_modelled(self) -> None:
        """Raise NotModelledError naming every flag that is not modelled."""
        if self.not_modelled:
            raise NotModelledError([(str(each), each.flag.why) for each in self.not_modelled])

    def require_companions(self) -> None:
        """Raise NoStartError for a flag that needs another which is not given."""
        names = {each.flag.name for each in self.given}
        for each in self.given:
            needs = each.flag.needs
            if needs and not each.changes_nothing and not names.intersection(needs):
                raise NoStartError(f"{each} needs one of: {', '.join(f'--{name}' for name in needs)}")

    def missing_in(self, version: str) -> list[GivenFlag]:
        """Flags that this version of vLLM does not have."""
        return [each for each in self.given if version not in each.flag.versions]

    def value(self, name: str) -> object:
        """What was given for a flag of vLLM's, by its name without dashes; None if it was not."""
        return next((each.value for each in self.given if each.flag.name == name), None)

    def obeyed(self, version: str) -> list[str]:
        """The variables that a replay takes heed of."""
        return [f"{name}={value}" for name, value in self.environment.items() if version in OBEYED.get(name, ())]

    def says(self, fields: Sequence[str]) -> bool:
        """Whether one of these settings was given."""
        return any(name in self.named for name in fields)


def _looks_like_vllm(name: str) -> bool:
    return name.startswith(("VLLM_", "NCCL_", "TORCH", "PYTORCH_", "CUDA_"))
