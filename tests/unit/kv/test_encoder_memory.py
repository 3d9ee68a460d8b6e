"""Memory that an image encoder's work takes beyond a decoder's step, as vLLM measures it when it starts."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.memory.room import ENCODER_MOST, EncodedAtOnce, MemoryPart, encoder_part
from tokenyard.models.named import model_called
from tokenyard.models.spec import EncoderSpec
from tokenyard.questions.scenario import replay_spec
from tokenyard.steptime.encoders import timed_encoders

QWEN = model_called("qwen2.5-vl-7b")
NOTHING = MemoryPart("", 0, 0)
ONE_PICTURE = ("--limit-mm-per-prompt", '{"video": 0}')


def _tower() -> EncoderSpec:
    (found,) = timed_encoders(QWEN)
    return found


def test_a_picture_of_qwen2_5_vl_by_hand() -> None:
    """65,536 patches of 3 x 1,280 and 3 x 3,420 elements of two bytes (biases count), 16,384 embeddings kept."""
    kept = 16_384 * 3584 * 2
    columns = _tower().mlp_columns
    assert columns == pytest.approx(3 * 3420, rel=0.002)
    part = encoder_part(EncodedAtOnce(_tower(), 16_384), QWEN, NOTHING)
    assert part.likely == 65_536 * (3 * 1280 + columns) * 2 + kept
    assert part.most == int(part.likely * ENCODER_MOST)


def test_only_what_goes_beyond_the_step_counts_and_embeddings_always_do() -> None:
    kept = 16_384 * 3584 * 2
    alone = encoder_part(EncodedAtOnce(_tower(), 16_384), QWEN, NOTHING).likely
    step = MemoryPart("", 10**9, 10**9)
    assert encoder_part(EncodedAtOnce(_tower(), 16_384), QWEN, step).likely == alone - 10**9
    assert encoder_part(EncodedAtOnce(_tower(), 16_384), QWEN, MemoryPart("", alone, alone)).likely == kept
    wide = replace(_tower(), vectors_per_embedding=4)
    assert encoder_part(EncodedAtOnce(wide, 16_384), QWEN, MemoryPart("", 4 * alone, 4 * alone)).likely == 4 * kept


def test_more_patches_take_more_and_gpus_share_it() -> None:
    twice = replace(_tower(), patches_per_embedding=8)
    one, two = (encoder_part(EncodedAtOnce(each, 4096), QWEN, NOTHING).likely for each in (_tower(), twice))
    assert 1.9 * one < two < 2 * one
    assert encoder_part(EncodedAtOnce(_tower(), 4096), QWEN, NOTHING, 2).likely < 0.8 * one


def test_qwen3_vl_keeps_the_vectors_of_further_layers() -> None:
    (plain,), (deep,) = (timed_encoders(model_called(name)) for name in ("qwen3.5-27b", "qwen3-vl-8b"))
    assert (plain.vectors_per_embedding, deep.vectors_per_embedding) == (1, 4)


def _settled(line: str) -> ResolvedSettings:
    command = parse(["run", "random", "--limit", "1", "--serve", line, "--gpu", "h100"])
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command)).settled


def _reserved(*flags: str, model: str = "qwen2.5-vl-7b") -> dict[str, int]:
    made = _settled(shlex.join(["vllm", "serve", model, *flags]))
    parts = {part.name: part.likely for part in made.memory_parts()}
    return {"encoder": parts["encoder"], "blocks": made.plan.num_blocks}


def test_what_may_come_in_decides_how_much_is_kept_free() -> None:
    videos, pictures = _reserved(), _reserved(*ONE_PICTURE)
    assert videos["encoder"] > 5 * pictures["encoder"] > 0
    assert videos["blocks"] < pictures["blocks"]
    many = _reserved(*ONE_PICTURE, "--max-num-batched-tokens", "65536")
    assert many["encoder"] > pictures["encoder"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--language-model-only",),
        ("--limit-mm-per-prompt", '{"image": 0, "video": 0}'),
    ],
)
def test_text_keeps_nothing_free(flags: tuple[str, ...]) -> None:
    assert _reserved(*flags)["encoder"] == 0
    assert _reserved(model="llama-3.1-8b")["encoder"] == 0


def test_vllm_may_be_told_not_to_measure_it() -> None:
    line = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct"
    measured, skipped = _settled(line), _settled(f"{line} --skip-mm-profiling")
    assert skipped.encoded is None
    assert measured.encoded is not None
    assert measured.encoded.embeddings == 114_688
    assert measured.plan.num_blocks < skipped.plan.num_blocks


def test_gpus_that_share_pictures_hold_the_whole_encoder() -> None:
    line = "vllm serve qwen2.5-vl-7b --tensor-parallel-size 2"
    weights, data = _settled(line), _settled(f"{line} --mm-encoder-tp-mode data")
    whole = sum(each.num_bytes() for each in QWEN.encoders)
    more = data.model.weight_bytes(2) - weights.model.weight_bytes(2)
    assert more == whole - sum(each.num_bytes(2) for each in QWEN.encoders) > 0
    assert data.plan.num_blocks < weights.plan.num_blocks
    alone = _settled("vllm serve qwen2.5-vl-7b --mm-encoder-tp-mode data")
    assert alone.model == QWEN


def test_a_class_that_cannot_share_pictures_shares_weights() -> None:
    line = "vllm serve gemma-3-27b --tensor-parallel-size 2"
    weights, data = _settled(line), _settled(f"{line} --mm-encoder-tp-mode data")
    assert data.plan == weights.plan
    assert [each for each in data.model.notes if "mm_encoder_tp_mode" in each]
    assert not [each for each in weights.model.notes if "mm_encoder_tp_mode" in each]


def test_as_many_items_as_gpus_take_what_one_takes() -> None:
    tower = replace(_tower(), shares_work=True)
    one, two = (EncodedAtOnce(tower, each * 4096, each) for each in (1, 2))
    assert one.patches(2) == two.patches(2) == two.patches(1) // 2 == 4 * 4096
