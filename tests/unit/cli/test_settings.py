"""Flags that stand for settings take everything from the configuration and give their values back to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pytest

from tokenyard.cli.support.parsing import read
from tokenyard.core.config import settings_for
from tokenyard.deploy.settings import Settings, setting, with_settings


@dataclass(frozen=True, kw_only=True)
class Config:
    seats: int = 4
    """Most guests
    at a table."""
    open: bool = False
    """Whether anybody is let in."""
    music: bool = True
    """Whether a band plays."""


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class Flags(Settings):
    """What a guest may ask for."""

    seats: int = setting(Config)
    open: bool = setting(Config)
    music: bool = setting(Config, default=False)
    name: str = "nobody"
    """Not the kitchen's business."""


def parsed(*arguments: str) -> Flags:
    return read(Flags, arguments)


def test_defaults_are_the_configurations_unless_a_flag_has_its_own() -> None:
    assert parsed() == Flags() == Flags(seats=4, open=False, music=False)


def test_values_arrive_where_their_names_are() -> None:
    given = asdict(parsed("--seats", "7", "--music", "--name", "me"))
    assert Config(**settings_for(Config, given)) == Config(seats=7, open=False, music=True)


def test_help_is_the_configurations(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "Most guests at a table. (default: 4)" in text
    assert "Whether anybody is let in. (default: False)" in text
    assert "--open" in text
    assert "--no-open" not in text


def test_a_setting_that_the_configuration_lacks_is_our_mistake() -> None:
    with pytest.raises(KeyError):

        @with_settings
        class _Wrong:
            tables: int = setting(Config)
