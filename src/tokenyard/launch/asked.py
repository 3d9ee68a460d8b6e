"""What somebody asked of vLLM: flags of the command line, of a pasted line and of a file, by what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenyard.errors import NotModelledError
from tokenyard.launch.flag import Effect, GivenFlag

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

    def of(self, effect: Effect) -> list[GivenFlag]:
        """The flags of one class, in their order."""
        return [each for each in self.given if each.flag.effect is effect]

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

    @property
    def ignored(self) -> list[str]:
        """What would change something and does not here, each with what it would change."""
        said = [f"{each}: {each.flag.why}" for each in self.not_modelled]
        return said + [
            f"{name}={value}: variables of the environment are not modelled"
            for name, value in self.environment.items()
            if not name.startswith(_OF_THE_PLACE) and _looks_like_vllm(name)
        ]

    def require_modelled(self) -> None:
        """Raise NotModelledError naming every flag that is not modelled."""
        if self.not_modelled:
            raise NotModelledError([(str(each), each.flag.why) for each in self.not_modelled])

    def missing_in(self, version: str) -> list[GivenFlag]:
        """Flags that this version of vLLM does not have."""
        return [each for each in self.given if version not in each.flag.versions]

    def says(self, fields: Sequence[str]) -> bool:
        """Whether one of these settings was given."""
        return any(name in self.named for name in fields)


def _looks_like_vllm(name: str) -> bool:
    return name.startswith(("VLLM_", "NCCL_", "TORCH", "PYTORCH_", "CUDA_"))
