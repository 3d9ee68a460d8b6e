"""Every model known by name has a name on the hub, and that name leads back to it."""

from __future__ import annotations

import pytest

from tokenyard.deploy.vllm_serve.models import HUB_IDS, hub_id, known_as
from tokenyard.models.named import MODELS


def test_all_models_but_one_have_one() -> None:
    assert set(MODELS) - set(HUB_IDS) == {"llama-3.1-70b-fp8-kv"}
    assert set(HUB_IDS) <= set(MODELS)


@pytest.mark.parametrize("name", sorted(HUB_IDS))
def test_it_is_read_as_the_model_that_it_stands_for(name: str) -> None:
    known = known_as(HUB_IDS[name], MODELS)
    assert known is not None
    assert known.name == name


def test_what_is_no_name_of_ours_has_none() -> None:
    assert hub_id("Llama-3.1-8B") == "meta-llama/Llama-3.1-8B-Instruct"
    assert hub_id("./my-model") is None
    assert hub_id("acme/Llama-3.1-8B-Instruct") is None
