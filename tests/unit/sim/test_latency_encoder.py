"""What a step's encoder takes: by the sizes of its tower, by the pictures, and never where there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.planner_answers import recorded

from tokenyard.cli.main import main
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import model_called
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import EncoderSpec, ModelSpec
from tokenyard.steptime.calibrated import IMAGE_ENCODER, CalibratedLatency
from tokenyard.steptime.encoders import encoder_counts, shared_out, timed_encoders
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.load import load_latency
from tokenyard.steptime.model import StepShape

REGISTRY = recorded(Path(__file__).parents[1] / "models" / "registry.json.gz")["architectures"]
H100 = named_gpu("h100")
QWEN = model_called("qwen2.5-vl-7b")


def _tower() -> EncoderSpec:
    (found,) = timed_encoders(QWEN)
    return found


def _latency(encoder: EncoderSpec | None, tp: int = 1) -> CalibratedLatency:
    encoders = () if encoder is None else (encoder,)
    return CalibratedLatency(QWEN, H100, encoders=encoders, parallel=Parallelism(tensor=tp))


def _step(*pictures: int, tokens: int = 2048) -> StepShape:
    return StepShape(np.array([tokens]), np.zeros(1, np.int64), 1, tokens, pictures)


def _encoding(encoder: EncoderSpec, *pictures: int, tp: int = 1) -> float:
    """Seconds that these pictures add to a step."""
    latency = _latency(encoder, tp)
    return latency.step_seconds(_step(*pictures)) - latency.step_seconds(_step())


def test_the_tower_of_qwen2_5_vl_by_hand() -> None:
    """32 layers, 1,280 wide, gated MLPs of 3,420; windows of 112 pixels are 8 x 8 patches, four layers see all."""
    layer = 4 * 1280 * 1280 + 4 * 1280 + 3 * 1280 * 3420 + 2 * 3420 + 3 * 1280
    tower = _tower()
    assert (tower.num_layers, tower.hidden_size, tower.layer_parameters) == (32, 1280, 32 * layer)
    assert (tower.patches_per_embedding, tower.window, tower.whole_layers) == (4, 64, 4)
    counts = encoder_counts(tower, 2, 1)
    assert counts.linear[0].parameters == 32 * layer
    assert counts.head.parameters == tower.num_parameters - 32 * layer
    assert [(each.layers, each.window, each.pair_flops) for each in counts.attention] == [
        (4, 0, 4 * 1280),
        (28, 64, 4 * 1280),
    ]
    shared = encoder_counts(tower, 2, 2)
    assert (shared.linear[0].parameters, shared.all_reduces) == (16 * layer, 64)


def test_a_large_picture_takes_what_its_arithmetic_does() -> None:
    """4,096 patches: 5.2 TFLOP in products, 0.4 in attention; a GPU does less than its data sheet, and not a third."""
    tower = _tower()
    products = 2 * 4096 * tower.layer_parameters
    attention = 4 * 1280 * 4096 * (4 * 4096 + 28 * 64)
    at_best = (products + attention) / H100.bf16_flops
    assert at_best < _encoding(tower, 1024) < 3 * at_best


@pytest.mark.parametrize("model", ["qwen2.5-vl-7b", "gemma-3-27b", "mistral-small-3.1-24b"])
def test_twice_the_patches_take_longer(model: str) -> None:
    (tower,) = timed_encoders(model_called(model))
    few, many = (replace(tower, patches_per_embedding=each * tower.patches_per_embedding) for each in (1, 2))
    assert _encoding(many, 4096) > 1.9 * _encoding(few, 4096)


def test_a_window_is_cheaper_and_pictures_do_not_see_each_other() -> None:
    tower = _tower()
    whole = replace(tower, window=0, whole_layers=0)
    assert _encoding(whole, 8192) > 1.5 * _encoding(tower, 8192)
    assert _encoding(whole, 8192) > 1.2 * _encoding(whole, 4096, 4096)
    narrow = replace(tower, whole_layers=0)
    assert _encoding(narrow, 8192) == pytest.approx(_encoding(narrow, 4096, 4096))


def test_gpus_share_a_tower() -> None:
    tower = _tower()
    assert 0.5 * _encoding(tower, 8192) < _encoding(tower, 8192, tp=2) < 0.9 * _encoding(tower, 8192)
    assert _encoding(replace(tower, num_heads=3), 8192, tp=2) == pytest.approx(_encoding(tower, 8192), rel=0.01)


def test_gpus_may_share_pictures() -> None:
    """``--mm-encoder-tp-mode data``: the GPU with the most patches decides."""
    tower = replace(_tower(), shares_work=True)
    one = _encoding(tower, 8192)
    gathered = pytest.approx(one, rel=0.02)
    assert _encoding(tower, 8192, tp=2) == gathered
    assert _encoding(tower, 8192, 8192, tp=2) == gathered
    assert _encoding(tower, 8192, *(1024,) * 8, tp=4) == gathered
    assert _encoding(tower, *(8192,) * 3, tp=2) == pytest.approx(_encoding(tower, 8192, 8192), rel=0.02)


@pytest.mark.parametrize(
    ("embeds", "ranks", "patches"),
    [
        ((1000, 100, 200, 50), 2, [[4000], [800, 400, 200]]),
        ((10,), 4, [[40]]),
        ((5, 5, 5, 5), 2, [[20, 20], [20, 20]]),
    ],
)
def test_the_largest_goes_to_the_gpu_with_the_fewest(
    embeds: tuple[int, ...], ranks: int, patches: list[list[int]]
) -> None:
    shares = shared_out(_tower(), embeds, ranks)
    assert [[each.patches for each in share] for share in shares] == patches


def test_tiles_are_shared_out_evenly() -> None:
    """InternVL: 13 and 5 tiles of 256 embeddings, of which a GPU of four gets five at most."""
    (tower,) = timed_encoders(_built("InternVLChatModel"))
    tiles = [256 * 13, 256 * 5]
    assert [len(each) for each in shared_out(tower, tiles, 4)] == [5]
    assert sum(each.patches for each in shared_out(tower, tiles, 1)[0]) == 18 * tower.window


def test_what_every_gpu_holds_of_a_layer_is_not_shared() -> None:
    """InternVL's attention by the code of transformers: its MLPs alone are shared out."""
    (tower,) = timed_encoders(_built("InternVLForConditionalGeneration"))
    held = tower.replicated_layer_parameters
    assert held == tower.num_layers * (4 * 1024 * 1024 + 8 * 1024)
    whole, half = (encoder_counts(tower, 2, tp) for tp in (1, 2))
    assert half.linear[0].parameters == held + (tower.layer_parameters - held) // 2
    assert (whole.all_reduces, half.all_reduces) == (0, tower.num_layers)
    assert half.attention == whole.attention
    alone = replace(tower, replicated_layer_parameters=tower.layer_parameters)
    assert encoder_counts(alone, 2, 2).all_reduces == 0


def _built(architecture: str) -> ModelSpec:
    (config,) = (
        case["config"]
        for entry in REGISTRY
        for case in entry["cases"]
        if entry["architecture"] == architecture and case["variant"] == "default"
    )
    return model_from_config(config, name=architecture, where="file")


@pytest.mark.parametrize(
    ("architecture", "embeddings", "patches"),
    [
        ("Gemma4ForConditionalGeneration", (200, 280), (2520, 2520)),  # pictures are filled up
        ("LlavaNextForConditionalGeneration", (1176, 2928), (2 * 577, 5 * 577)),
        ("WhisperForConditionalGeneration", (300, 1500), (1500, 1500)),  # 30 seconds
        ("Qwen2AudioForConditionalGeneration", (25, 750), (1500, 1500)),
        ("VoxtralForConditionalGeneration", (375, 750), (1500, 3000)),
        ("MiniCPMV", (64, 640), (1024, 10_240)),
        ("KimiK25ForConditionalGeneration", (100, 4225), (400, 16_900)),
        ("GlmOcrForConditionalGeneration", (100, 7396), (400, 29_584)),
    ],
)
def test_tiles_and_stretches_of_sound_are_filled_up(
    architecture: str, embeddings: tuple[int, int], patches: tuple[int, int]
) -> None:
    (tower,) = timed_encoders(_built(architecture))
    assert tuple(map(tower.num_patches, embeddings)) == patches


def test_a_picture_goes_through_all_towers_in_a_row() -> None:
    """DeepSeek-OCR: 4,096 patches of Segment Anything for 256 embeddings, which CLIP sees."""
    towers = timed_encoders(_built("DeepseekOCRForCausalLM"))
    assert [each.num_patches(256) for each in towers] == [4096, 256]
    both, *alone = (
        CalibratedLatency(QWEN, H100, encoders=each).step_seconds(_step(256))
        for each in (towers, towers[:1], towers[1:])
    )
    plain = _latency(None).step_seconds(_step())
    assert both - plain == pytest.approx(sum(alone) - 2 * plain)


def test_sound_takes_time_where_a_model_sees_nothing() -> None:
    whisper, omni = _built("WhisperForConditionalGeneration"), _built("Qwen2_5OmniForConditionalGeneration")
    assert [each.kind for each in timed_encoders(whisper)] == ["audio"]
    assert [each.kind for each in omni.encoders] == ["vision", "audio"]
    assert [each.kind for each in timed_encoders(omni)] == ["vision"]


def test_steps_without_pictures_take_what_they_took() -> None:
    with_it, without = _latency(_tower()), _latency(None)
    shapes = [_step(tokens=each) for each in (1, 700, 8192)]
    assert [with_it.step_seconds(each) for each in shapes] == [without.step_seconds(each) for each in shapes]
    assert with_it.decode_seconds(8, 4096, 5) == without.decode_seconds(8, 4096, 5)
    assert without.step_seconds(_step(1024)) == without.step_seconds(_step())


def test_ranks_wait_for_the_one_that_looks() -> None:
    latency, plain = _latency(_tower()), _step()
    together = latency.ranks_seconds([plain, _step(1024)])
    assert together == pytest.approx(latency.ranks_seconds([plain, plain]) + _encoding(_tower(), 1024))
    assert latency.ranks_seconds([None, plain]) == _latency(None).ranks_seconds([None, plain])


def test_the_range_says_that_it_was_not_measured() -> None:
    known, text = _latency(_tower()).known_error(), _latency(None).known_error()
    assert IMAGE_ENCODER in known.sentence
    assert IMAGE_ENCODER not in text.sentence
    for wide, narrow in ((known.tpot, text.tpot), (known.ttft, text.ttft)):
        assert wide.low < narrow.low
        assert wide.high > narrow.high
        assert wide.median > narrow.median


def test_a_published_time_of_a_picture_lies_in_the_range() -> None:
    """A picture of 1,920 x 1,080 on an H100, vLLM 0.19.1: 0.126 s of prefill, encoder included.

    https://github.com/vllm-project/vllm/issues/41267; nothing is fitted to it.
    """
    latency, shape = CalibratedLatency(QWEN, H100, encoders=(_tower(),), version="0.19.1"), _step(2691, tokens=2718)
    predicted, measured = latency.step_seconds(shape), 0.126
    assert round(predicted, 3) == 0.089
    low, high = latency.known_error().ttft.around(predicted)
    assert low < measured < high
    assert abs(measured - predicted) < abs(measured - _latency(None).step_seconds(shape))


def test_only_a_tower_whose_sizes_are_known_takes_time() -> None:
    spec = replace(QWEN, encoders=(replace(_tower(), patches_per_embedding=0),))
    assert timed_encoders(spec) == ()
    shape = _step(1024)
    plain = load_latency("calibrated", model=spec, gpu=H100, has_images=True).step_seconds(shape)
    assert plain == load_latency("calibrated", model=QWEN, gpu=H100).step_seconds(shape)
    assert load_latency("calibrated", model=QWEN, gpu=H100, has_images=True).step_seconds(shape) > plain


def _run(folder: Path, capsys: pytest.CaptureFixture[str], *flags: str, images: bool = True) -> dict[str, Any]:
    rows = [
        {"request_id": f"r{i}", "arrival_time": i / 4, "prompt_len": 3000, "max_tokens": 40}
        | ({"images": [1024, 900]} if images else {})
        for i in range(6)
    ]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ["run", str(path), "--model", "qwen2.5-vl-7b", "--gpu", "h100", "--advice", "none", "--json", *flags]
    assert main(line) == 0, capsys.readouterr().err
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_pictures_are_waited_for_and_the_header_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sees, text = _run(tmp_path, capsys), _run(tmp_path, capsys, images=False)
    assert sees["ttft_ms"]["p50"] > text["ttft_ms"]["p50"] + 1e3 * _encoding(_tower(), 1024)
    (said,) = (each["why"] for each in sees["header"]["assumed"] if each["name"] == "images and sound")
    assert "an estimate that nothing measured: 630 M parameters for each of 4 patches an embedding" in said
    assert IMAGE_ENCODER in sees["header"]["step_time_error"]
    assert IMAGE_ENCODER not in text["header"]["step_time_error"]
    other = _run(tmp_path, capsys, "--latency", "constant:0.02")
    (said,) = (each["why"] for each in other["header"]["assumed"] if each["name"] == "images and sound")
    assert "the encoder takes no time with these step times" in said


def test_leaps_over_steps_take_what_the_steps_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step of a leap has pictures: asked for one by one they give the same report."""
    leaping = _run(tmp_path, capsys)
    monkeypatch.delattr(CalibratedLatency, "decode_seconds")
    assert _run(tmp_path, capsys) == leaping
