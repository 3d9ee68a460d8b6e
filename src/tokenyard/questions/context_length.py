"""A shorter context than the model's own, where vLLM would not start with that one and no request needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.settings import LaunchSettings
from tokenyard.errors import NoStartError
from tokenyard.workload.record import Workload

_LEAST = 1024


class _WithLaunch(Protocol):
    """Settings that know which of them were given."""

    @property
    def launch(self) -> LaunchSettings: ...


S = TypeVar("S", bound=_WithLaunch)
T = TypeVar("T")


class ShorterContext(msgspec.Struct, frozen=True):
    """The ``max_model_len`` that is taken, and why."""

    max_model_len: int
    default: int
    """What vLLM would take, and not start with."""
    longest_request: int
    """Tokens of the workload's longest request, prompt and answer."""

    @property
    def settings(self) -> dict[str, int]:
        """What to give beside the other settings."""
        return {"max_model_len": self.max_model_len}

    @property
    def sentence(self) -> str:
        """For the notes of an answer."""
        return (
            f"max_model_len {self.max_model_len:,} is taken, for none was given and vLLM would not start with the"
            f" model's own {self.default:,}, which need more KV cache than there is; the longest request has"
            f" {self.longest_request:,} tokens"
        )


def shorter_context(settings: _WithLaunch, error: NoStartError, workload: Workload) -> ShorterContext | None:
    """The power of two that holds the longest request, or the most that fits; None where that is not what is wrong.

    It is not where a length was given, or the longest request does not fit either.
    """
    fits = error.details.get("longest")
    if error.field != "max_model_len" or not isinstance(fits, int) or settings.launch.asked.says(("max_model_len",)):
        return None
    longest = max((len(request.prompt) + request.max_tokens for request in workload), default=0)
    if longest > fits:
        return None
    rounded = max(_LEAST, 1 << (longest - 1).bit_length())
    return ShorterContext(min(rounded, fits), int(str(error.value)), longest)


def made_to_start(
    settings: S, workload: Callable[[], Workload], make: Callable[[S], T]
) -> tuple[T, ShorterContext | None]:
    """What ``make`` makes of the settings, or of them with a shorter context. Raises NoStartError if none helps."""
    try:
        return make(settings), None
    except NoStartError as error:
        shorter = shorter_context(settings, error, workload())
        if shorter is None:
            raise
    other: Any = changed(settings, shorter.settings)
    return make(other), shorter
