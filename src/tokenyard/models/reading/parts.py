"""A file being read."""

from __future__ import annotations

from dataclasses import field

from tokenyard.models.fields import Fields
from tokenyard.models.reading.quantization import Quantization
from tokenyard.models.recorded import recorded
from tokenyard.quick_dataclass import dataclass


def listed(fact: str, architecture: str) -> bool:
    """Whether this holds for a pipeline of vLLM, as ``lab/record_stages.py`` has seen when it built two stages.

    ``fact`` is "no pipeline", "embedding on every stage" or "head on every stage".
    """
    return architecture in recorded("stages")[fact]


@dataclass(kw_only=True)
class ConfigReader:
    """A file being read."""

    fields: Fields
    """Fields of the language model: ``text_config`` where there is one."""
    outer: Fields
    """Fields of the file."""
    quant: Quantization
    architecture: str
    dtype: str
    ignore: bool = False
    """Note what is not modelled instead of raising an error."""
    ignored: list[str] = field(default_factory=list)

    def not_modelled(self, field_name: str, what: str) -> None:
        """Raise the error that names this field, or note it if asked to ignore it."""
        if not self.ignore:
            fix = f"{what} is not modelled: --ignore-unmodelled goes on without it"
            raise self.fields.error(field_name, fix)
        self.ignored.append(f"{field_name}: {what}")
