"""Every model known by name has a name on the hub, and that name leads back to it."""

from __future__ import annotations

from tokenyard.deploy.vllm_serve.models import HUB_IDS, hub_id, known_as
from tokenyard.models.named import MODELS


def test_all_models_but_one_have_one() -> None:
    assert set(MODELS) - set(HUB_IDS) == {"llama-3.1-70b-fp8-kv"}
    assert set(HUB_IDS) <= set(MODELS)


def test_each_is_read_as_the_model_that_it_stands_for() -> None:
    read = {name: known_as(there, MODELS) for name, there in HUB_IDS.items()}
    assert {name: known and known.name for name, known in read.items()} == {name: name for name in HUB_IDS}


def test_what_is_no_name_of_ours_has_none() -> None:
    assert hub_id("Llama-3.1-8B") == "meta-llama/Llama-3.1-8B-Instruct"
    assert hub_id("./my-model") is None
    assert hub_id("acme/Llama-3.1-8B-Instruct") is None
