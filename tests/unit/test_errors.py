"""An error is data beside its message: a code, the field, the value, the fix; and it travels between processes."""

from __future__ import annotations

import pickle

import pytest

from tokenyard import errors
from tokenyard.errors import ConfigError, NotModelledError, RequestError, TokenyardError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.named import MODELS
from tokenyard.models.reading.read import model_from_config

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TokenyardError)]
MADE = (
    ConfigError("gpu", "h1", "use h100", code="unknown", details={"nearest": "h100"}),
    RequestError("r", "max_tokens", 0, "give 1", code=errors.TOO_LONG),
    NotModelledError([("--enable-dbo", "time")]),
    errors.NoStartError("no room: raise §max_model_len", "max_model_len", 3, details={"least": 4}),
    errors.MissingExtraError("ray", "ray"),
    errors.StuckError("r", "kv_blocks", 3, 2),
    errors.WorkloadError("a.jsonl", 3, "no time"),
)


def test_every_kind_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert TokenyardError.code == "error"


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_it_travels(error: TokenyardError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert (again.code, again.field, again.value, again.fix) == (error.code, error.field, error.value, error.fix)


def test_codes_say_more_where_a_program_asks() -> None:
    with pytest.raises(ConfigError) as caught:
        model_from_config({"model_type": "llama"}, name="x", where="config.json")
    assert caught.value.code == errors.MISSING
    with pytest.raises(ConfigError) as caught:
        plan_kv_cache(
            MODELS["llama-3.1-8b"], available_bytes=1 << 30, max_model_len=131_072, max_num_batched_tokens=2048
        )
    assert caught.value.code == errors.TOO_LONG
    longest = caught.value.details["longest"]
    assert isinstance(longest, int)
    assert str(longest) in caught.value.fix, "the sentence says the same"
    plan_kv_cache(MODELS["llama-3.1-8b"], available_bytes=1 << 30, max_model_len=longest, max_num_batched_tokens=2048)
