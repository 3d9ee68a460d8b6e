"""Whole config.json files of public repositories, as they are: what ``lab/read_configs.py`` has read.

None of the files is kept here; ``public_configs.json`` has what each came to. With a clone of one of the repositories
under the folder that ``TOKENYARD_PUBLIC_CONFIGS`` names, its files are read again.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.named import MODELS, known_as
from tokenyard.models.reading.read import read_model_file

RECORDED: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("public_configs.json").read_text())
READ = [row for rows in RECORDED.values() for row in rows if "why" not in row]
LOST = {"Llama-4": 5e-3, "Step-3.7": 6e-3}
"""Share of the parameters that a file leaves out."""
NOT_READ = [row for rows in RECORDED.values() for row in rows if "why" in row]


def test_two_hundred_whole_files_are_read_without_a_flag() -> None:
    assert len(READ) >= 200
    assert len({row["sha256"] for row in READ}) >= 150
    assert len(NOT_READ) <= 11


def test_a_whole_file_is_the_model_that_is_known_by_its_name() -> None:
    """aiconfigurator's are called OWNER--MODEL_config.json."""
    compared, wrong = 0, []
    for row in RECORDED["ai-dynamo/aiconfigurator"]:
        stem = Path(row["file"]).name.removesuffix("_config.json")
        known = known_as(stem.replace("--", "/"), MODELS) if "--" in stem and "why" not in row else None
        if known is None or known.quantised_as is not None:
            continue
        model, compared = MODELS[known.name], compared + 1
        # Tunings of one model may differ by some hundred words of vocabulary (Mixtral 8x22B). Llama 4's files there
        # have lost their vision section: the class fills in a smaller tower. Step-3.7's has lost the heads that layers
        # with a window have beyond the others.
        within = next((share for lost, share in LOST.items() if lost in stem), 1e-3)
        ours = (pytest.approx(model.num_parameters, rel=within), model.num_layers, model.kv_bytes_per_token())
        if ours != (row["parameters"], row["layers"], row["kv_bytes_per_token"]):
            wrong.append(f"{stem}: {ours}")
    assert compared >= 40
    assert wrong == []


@pytest.mark.parametrize("repository", RECORDED)
def test_files_at_hand_come_to_the_same(repository: str) -> None:
    around = os.environ.get("TOKENYARD_PUBLIC_CONFIGS")
    places = [Path(around or ".") / name for name in (repository, repository.replace("/", "+"))]
    folder = next((each for each in places if each.is_dir()), None)
    if around is None or folder is None:
        pytest.skip(f"no clone of {repository}: TOKENYARD_PUBLIC_CONFIGS names the folder with OWNER/NAME in it")
    for row in RECORDED[repository]:
        file = folder / row["file"]
        if not file.is_file() or sha256(file.read_bytes()).hexdigest() != row["sha256"]:
            continue
        if "why" in row:
            with pytest.raises(ConfigError):
                read_model_file(file)
        else:
            model = read_model_file(file)
            assert (model.num_parameters, model.kv_bytes_per_token()) == (row["parameters"], row["kv_bytes_per_token"])
            assert model.ignored == ()
