"""Every model known by name has a name on the hub, and that name leads back to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokenyard
from tokenyard.errors import ConfigError
from tokenyard.models.named import MODELS, KnownModel, config_of, hub_id, hub_names, known_as, model_called


def test_all_models_but_one_have_one() -> None:
    assert set(MODELS) - set(hub_names().ids) == {"llama-3.1-70b-fp8-kv"}
    assert set(hub_names().ids) <= set(MODELS)


def test_each_is_read_as_the_model_that_it_stands_for() -> None:
    read = {name: known_as(there, MODELS) for name, there in hub_names().ids.items()}
    assert {name: known and known.name for name, known in read.items()} == {name: name for name in hub_names().ids}


def test_what_is_no_name_of_ours_has_none() -> None:
    assert hub_id("Llama-3.1-8B") == "meta-llama/Llama-3.1-8B-Instruct"
    assert hub_id("./my-model") is None
    assert hub_id("acme/Llama-3.1-8B-Instruct") is None


@pytest.mark.parametrize(
    ("name", "stands_for"),
    [
        ("openai/gpt-oss-20b", ("gpt-oss-20b", None)),
        ("unsloth/gpt-oss-20b-BF16", None),
        ("unsloth/DeepSeek-R1-BF16", None),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ("nemotron-3-nano-30b-a3b", None)),
        ("CohereLabs/c4ai-command-r-08-2024", None),
        ("CohereLabs/c4ai-command-r-plus-08-2024", ("command-r-plus", None)),
        ("openai/whisper-large-v3-turbo", ("whisper-large-v3-turbo", None)),
        ("acme/Meta-Llama-3.1-8B-Instruct-GPTQ-Int8", ("llama-3.1-8b", None, "gptq in 8 bits")),
        ("acme/Meta-Llama-3.1-8B-Instruct-GPTQ-Int4", ("llama-3.1-8b-gptq", None)),
        ("THUDM/glm-4-9b-chat-hf", ("glm-4-9b", 131_072)),
        ("togethercomputer/LLaMA-2-7B-32K", None),
        ("gradientai/Llama-3-8B-Instruct-262k", None),
        ("Qwen/Qwen3-8B-Base", ("qwen3-8b", 32_768)),
        ("Qwen/Qwen2.5-7B", ("qwen2.5-7b", 131_072)),
        ("qwen2.5-7b", ("qwen2.5-7b", None)),
        ("Qwen/Qwen2.5-7B-Instruct", ("qwen2.5-7b", None)),
        ("zai-org/GLM-4.5-FP8", ("glm-4.5", None, "llama-3.1-8b-fp8")),
        ("Qwen/Qwen3-8B-AWQ", ("qwen3-8b", None, "qwen3-32b-awq")),
        ("Qwen/Qwen3-4B-Instruct-2507-FP8", ("qwen3-4b", 262_144, "qwen3-32b-fp8")),
        ("RedHatAI/Mistral-Small-24B-Instruct-2501-quantized.w8a8", ("mistral-small-24b", None, "llama-3.1-8b-w8a8")),
        ("acme/Qwen3-8B-AWQ-8bit", None),
        ("acme/Qwen3-8B-FP8-block-static", None),
        ("acme/gpt-oss-20b-AWQ", ("gpt-oss-20b", None, "qwen3-32b-awq")),
        ("acme/Jamba-1.5-Mini-FP8", ("jamba-1.5-mini", None, "llama-3.1-8b-fp8")),
        ("acme/Qwen3-8B-GGUF", None),
        ("acme/Qwen2.5-VL-7B-Instruct-AWQ", ("qwen2.5-vl-7b", None, "qwen3-32b-awq")),
    ],
)
def test_other_weights_and_lengths_are_not_taken_for_the_known_ones(
    name: str, stands_for: tuple[str, int | None, str] | tuple[str, int | None] | None
) -> None:
    assert known_as(name, MODELS) == (stands_for and KnownModel(*stands_for))


def _served() -> list[tuple[str, KnownModel]]:
    lines = (Path(__file__).parent / "served.txt").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [
        (name, KnownModel(known, None if length == "-" else int(length), None if method == "-" else method))
        for name, known, length, method in words
    ]


@pytest.mark.parametrize(("name", "stands_for"), _served())
def test_what_is_often_served_is_known_without_network(name: str, stands_for: KnownModel) -> None:
    assert known_as(name, MODELS) == stands_for


def test_they_are_more_than_150() -> None:
    assert len(_served()) > 200


def test_whatever_takes_a_model_takes_its_name_on_the_hub() -> None:
    named = "Qwen/Qwen3-4B-Instruct-2507"
    model = tokenyard.Deployment(model=named, gpu="h100").resolve().settled.model
    assert model_called(named) == model
    latency = tokenyard.load_latency("calibrated", model=named, gpu="h100")
    assert repr(latency) == repr(tokenyard.load_latency("calibrated", model="qwen3-4b", gpu="h100"))
    assert tokenyard.image_tokens("Qwen/Qwen2.5-VL-7B-Instruct", 1280, 720) == 1196
    assert model_called("Qwen/Qwen3-8B-AWQ").quantization == "awq"


def test_a_folder_that_is_there_counts_before_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config_of("qwen3-8b")[2], "num_hidden_layers": 4}))
    assert tokenyard.Deployment(model=str(folder), gpu="h100").resolve().settled.model.num_layers == 4
    assert model_called("/elsewhere/Qwen3-8B").num_layers == 36


def _cached(home: Path, name: str, **changes: object) -> None:
    """The hub's cache with a checkpoint, as the hub's client lays it out."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0123abc")
    (folder / "snapshots" / "0123abc").mkdir(parents=True)
    config = {**config_of("qwen3-8b")[2], **changes}
    (folder / "snapshots" / "0123abc" / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["acme/Qwen3-8B", "Qwen/Qwen3-8B"])
def test_a_file_in_the_hubs_cache_counts_before_what_its_name_is_known_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    _cached(tmp_path, name, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128})
    resolved = tokenyard.Deployment(model=name, gpu="h100").resolve()
    model = resolved.settled.model
    assert (model.name, model.quantization, model_called(name).quantization) == (name, "awq", "awq")
    said = [each.why for each in resolved.header.assumed if each.name == "model"]
    assert said == ["read from its config.json in the hub's cache, not by its name as qwen3-8b"]


@pytest.mark.parametrize("name", ["/elsewhere/Qwen3-8B", "/elsewhere/Qwen3-8B/", "models/of/Qwen3-8B", "./Qwen3-8B"])
def test_a_folder_that_is_not_there_has_the_shape_that_its_last_part_is_known_for(name: str) -> None:
    resolved = tokenyard.Deployment(model=name, gpu="h100").resolve()
    assert resolved.settled.model.name == "qwen3-8b"
    said = [each.why for each in resolved.header.assumed if each.name == "model"]
    assert said[0] == f"there is no {name} here: taken for what its last part is known for"


def test_what_is_read_from_a_file_is_not_said_to_be_absent(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_of("qwen3-8b")[2]))
    for name in (str(tmp_path), str(file), "acme/Qwen3-8B"):
        header = tokenyard.Deployment(model=name, gpu="h100").resolve().header
        assert not any("there is no" in each.why for each in header.assumed)


RECIPES = (Path(__file__).parent / "recipe_names.txt").read_text().splitlines()
OTHER_ANSWERS = (
    "TTS",
    "Diffus",
    "diffusion",
    "Image",
    "Wan2",
    "Cosmos",
    "MOSS",
    "stable-",
    "VoxCPM",
    "s2-pro",
    "H3",
    "GA",
)
"""Parts of names of what answers with pictures, films or sound, which no replay generates."""


def test_names_of_vllms_recipes_are_known() -> None:
    """The command that prints the share is ``lab/recipe_share.py``."""
    unknown = []
    for name in RECIPES:
        try:
            model_called(name)
        except ConfigError:
            unknown.append(name)
    assert len(RECIPES) - len(unknown) >= 236
    of_text = [name for name in unknown if not any(part in name for part in OTHER_ANSWERS)]
    assert len(of_text) <= 75, of_text


@pytest.mark.parametrize(
    ("name", "kv", "says"),
    [
        ("nvidia/DeepSeek-V3.1-NVFP4", "fp8", "KV in fp8"),
        ("RedHatAI/MiniMax-M2-NVFP4", None, "KV in 16 bits"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8", "KV in fp8"),
        ("Qwen/Qwen3.5-27B-FP8", None, "those of qwen3-32b-fp8"),
    ],
)
def test_a_format_is_assumed_aloud_and_by_whose_it_is(name: str, kv: str | None, says: str) -> None:
    model = model_called(name)
    assert model.kv_cache_dtype == kv
    assert says in model.notes[-1]
    assert "config.json" in model.notes[-1]
