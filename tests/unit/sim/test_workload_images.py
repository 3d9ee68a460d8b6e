"""Images and cache salts in a workload file: read, written, decided with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import recorded

from tokenyard.cli.main import main
from tokenyard.errors import WorkloadError
from tokenyard.workload.load import read_workload
from tokenyard.workload.readers.plain import workload_lines

BUILT = recorded(Path(__file__).parents[1] / "models" / "registry.json.gz")["architectures"]
ROW = {"request_id": "a", "prompt_len": 3000, "max_tokens": 4}
SEES = ("--model", "qwen2.5-vl-7b", "--gpu", "h100", "--advice", "none", "--json")


def _file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(ROW | {"request_id": f"r{i}"} | row) + "\n" for i, row in enumerate(rows)))
    return path


def _run(path: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["run", str(path), *SEES, *flags]) == 0, capsys.readouterr().err
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_images_stand_one_behind_the_other_or_where_they_are_put(tmp_path: Path) -> None:
    images = [1200, {"tokens": 600, "hash": "cat", "modality": "video"}, {"tokens": 10, "offset": 2990}]
    workload = read_workload(_file(tmp_path, {"images": images, "cache_salt": "mine"}))
    (request,) = workload
    assert [(i.offset, i.length, i.mm_hash) for i in request.images] == [
        (0, 1200, "r0/0"),
        (1200, 600, "cat"),
        (2990, 10, "r0/2"),
    ]
    assert [each.modality for each in request.images] == ["image", "video", "image"]
    made = request.arrive(0.0, 8192)
    assert (made.mm_features, made.cache_salt) == (request.images, "mine")
    path = tmp_path / "again.jsonl"
    path.write_bytes(b"".join(workload_lines(workload)))
    (again,) = read_workload(path)
    assert (again.images, again.cache_salt) == (request.images, "mine")


@pytest.mark.parametrize(
    ("images", "problem"),
    [
        ([3001], r"images\[0\] reaches to token 3001, and the prompt has 3000"),
        ([10, {"tokens": 5, "offset": 9}], r"images\[1\].offset = 9: the image before it reaches to token 10"),
        ([0], "images"),
        ([{"token": 5}], "images"),
        ([{"tokens": 5, "modality": "film"}], "modality"),
    ],
)
def test_images_that_cannot_be(images: list[Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=problem):
        read_workload(_file(tmp_path, {"images": images}))


def _reasons(report: dict[str, Any]) -> set[str]:
    return set(report["recorded_reasons"])


def test_what_the_encoder_may_compute_is_a_limit_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two images of 16,000 tokens: a budget of 20,000 embeddings has one of them in a step.

    Where videos may come in it is larger from the first: seven times two frames, each as large as an image.
    """
    images = ("--limit-mm-per-prompt", '{"video": 0}', "--max-num-seqs", "8")
    small, large = (*images, "--max-num-batched-tokens", "20000"), (*images, "--max-num-batched-tokens", "40000")
    path = _file(tmp_path, *[{"prompt_len": 16_100, "images": [16_000]}] * 2)
    held, free = _run(path, capsys, *small), _run(path, capsys, *large)
    videos = _run(path, capsys, "--max-num-batched-tokens", "20000", "--max-num-seqs", "8")
    text = _run(_file(tmp_path, *[{"prompt_len": 16_100}] * 2), capsys, *small)
    assert "encoder_budget" in _reasons(held)
    assert "encoder_budget" not in _reasons(free) | _reasons(text)
    (said,) = (each for each in held["header"]["assumed"] if each["name"] == "images and sound")
    assert said["value"] == "20,000 embeddings a step, as many kept"
    (said,) = (each for each in videos["header"]["assumed"] if each["name"] == "images and sound")
    assert (said["value"], said["why"][:8]) == ("114,688 embeddings a step, as many kept", "as vLLM ")
    (said,) = (each for each in text["header"]["assumed"] if each["name"] == "images and sound")
    assert said["value"] == "none"


def test_equal_images_hit_and_salts_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = {"hash_ids": [1, 2, 3], "block_size": 1000, "images": [{"tokens": 900, "hash": "cat"}]}
    later = {"arrival_time": 5.0}

    def hits(*rows: dict[str, Any]) -> float:
        return float(_run(_file(tmp_path, *rows), capsys)["prefix_hit_rate"]["local"])

    assert hits(shared, shared | later) > 0.4
    assert hits(shared, shared | later | {"images": [{"tokens": 900, "hash": "dog"}]}) == 0
    assert hits(shared, shared | later | {"cache_salt": "mine"}) == 0


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--model", "llama-3.1-8b"), "request 'r0' has images, and llama-3.1-8b reads none"),
        (("--model", "whisper-large-v3", "--language-model-only"), "--language-model-only leaves the encoder out"),
        (("--model", "qwen2.5-vl-7b", "--language-model-only"), "--language-model-only leaves the encoder out"),
        (("--model", "gemma-3-12b"), "has an image of 900 tokens; one of gemma-3-12b has at most 256"),
        (("--model", "qwen2.5-vl-7b", "--disable-chunked-mm-input"), "vLLM would not start"),
        (("--model", "qwen2.5-vl-7b", "--limit-mm-per-prompt", '{"image": 0}'), "allows 0, and vLLM refuses it"),
        (
            ("--model", "kimi-k2.5", "--limit-mm-per-prompt", '{"vision_chunk": 0}', "--tensor-parallel-size", "16"),
            "limit_mm_per_prompt.vision_chunk allows 0, and vLLM refuses it",
        ),
        (
            ("--model", "qwen2.5-vl-7b", "--limit-mm-per-prompt", '{"image": 0, "video": 0}'),
            "limit_mm_per_prompt allows 0, and vLLM refuses it",
        ),
    ],
)
def test_what_cannot_be_is_said(
    flags: tuple[str, ...], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    length = 400 if "whisper-large-v3" in flags else 1000
    path = _file(tmp_path, {"prompt_len": length, "max_tokens": 2, "images": [length - 100]})
    assert main(["run", str(path), "--gpu", "h100", *flags]) == 2
    assert problem in capsys.readouterr().err


VIDEO = {"tokens": 38_272, "modality": "video"}


def test_a_video_may_be_larger_than_any_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """64 frames of 1280 x 720, for Qwen2.5-VL, whose largest image has 16,384 tokens."""
    report = _run(_file(tmp_path, {"prompt_len": 40_000, "images": [VIDEO, 900]}), capsys)
    assert report["requests_finished"] == 1


@pytest.mark.parametrize(
    ("images", "line", "problem"),
    [
        ([{"tokens": 38_272}], "{}", "has an image of 38,272 tokens; one of qwen2.5-vl-7b has at most 16,384"),
        (
            [VIDEO | {"tokens": 114_689}],
            "{}",
            "has a video of 114,689 tokens; one of qwen2.5-vl-7b has at most 114,688",
        ),
        ([VIDEO, VIDEO, 900], '{"video": 1}', "has 2 videos; limit_mm_per_prompt.video allows 1, and vLLM refuses it"),
        ([900, 900, VIDEO], '{"image": 1}', "has 2 images; limit_mm_per_prompt allows 1, and vLLM refuses it"),
        (
            [{"tokens": 9, "modality": "audio"}],
            "{}",
            "has 1 sounds; vLLM's class for qwen2.5-vl-7b takes 0 in a prompt",
        ),
    ],
)
def test_items_count_against_the_limits_of_their_kind(
    images: list[Any], line: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, {"prompt_len": 120_000, "max_tokens": 2, "images": images})
    flags = ("--model", "qwen2.5-vl-7b", "--gpu", "h100", "--limit-mm-per-prompt", line)
    assert main(["run", str(path), *flags]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sounds", "problem"),
    [
        ([1501], "has a sound of 1,501 tokens; one of whisper-large-v3 has at most 1,500"),
        ([700, 700], "has 2 sounds; vLLM's class for whisper-large-v3 takes 1 in a prompt"),
    ],
)
def test_a_model_that_hears_takes_sounds(
    sounds: list[int], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"prompt_len": 4, "max_tokens": 2, "images": [{"tokens": each, "cross": True} for each in sounds]}
    assert main(["run", str(_file(tmp_path, row)), "--gpu", "h100", "--model", "whisper-large-v3"]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "line", "problem"),
    [
        (1, None, ""),
        (2, None, "has 2 images; vLLM's class for pali takes 1 in a prompt, and refuses it: leave the request out"),
        (2, '{"image": 4}', "vLLM's class for pali takes 1 in a prompt, and refuses it"),
        (1, '{"image": 0}', "has 1 images; limit_mm_per_prompt allows 0, and vLLM refuses it: raise that"),
    ],
)
def test_more_images_than_the_class_takes(
    count: int, line: str | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cases,) = (each["cases"] for each in BUILT if each["architecture"] == "PaliGemmaForConditionalGeneration")
    (tmp_path / "pali").mkdir()
    (tmp_path / "pali" / "config.json").write_text(json.dumps(cases[0]["config"]))
    path = _file(tmp_path, {"prompt_len": 1000, "max_tokens": 2, "images": [256] * count})
    flags = ("--model", str(tmp_path / "pali"), "--gpu", "h100", *(("--limit-mm-per-prompt", line) if line else ()))
    assert main(["run", str(path), *flags]) == (2 if problem else 0)
    assert problem in capsys.readouterr().err


def test_a_thousand_images_want_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path, {"prompt_len": 4000, "max_tokens": 2, "images": [4] * 1000})
    flags = ("--model", "qwen2.5-vl-7b", "--gpu", "h100")
    assert main(["run", str(path), *flags]) == 2
    assert "vLLM takes 999 where limit_mm_per_prompt says no number of image" in capsys.readouterr().err
    assert main(["run", str(path), *flags, "--limit-mm-per-prompt", '{"image": 1000}']) == 0
