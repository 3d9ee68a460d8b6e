"""What of a model known by name no public file confirmed is told to the user."""

from __future__ import annotations

import pytest

from tokenyard.models.named import MODELS, named_model, sources


def test_every_entry_is_a_known_model_and_says_something() -> None:
    for name, entry in sources().items():
        assert name in MODELS
        assert entry
        assert set(entry) <= {"source", "unconfirmed"}
        assert all(text.strip() for text in entry.values())


@pytest.mark.parametrize("name", [name for name, entry in sources().items() if "unconfirmed" in entry])
def test_what_is_not_confirmed_is_in_the_notes(name: str) -> None:
    assert any(sources()[name]["unconfirmed"] in note for note in named_model(name).notes)


def test_a_confirmed_model_has_no_such_note() -> None:
    assert "source" in sources()["qwen2-vl-7b"]
    assert not named_model("qwen2-vl-7b").notes
