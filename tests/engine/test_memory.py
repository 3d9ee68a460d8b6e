"""A step needs no more memory than those that are run before the KV cache gets its own; bounds change no result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.engine import drive
from tests.engine.adapters import make_adapter
from tests.engine.drive import serve
from tests.engine.needs_torch import torch, transformers
from tests.engine.sizes import FAMILIES
from tests.engine.test_token_exact import PROMPTS, check
from tests.engine.tiny_models import Checkpoint

from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.serve.torch import attention, load, sampling
from tokenyard.serve.torch.attention import BlockBatch, LayerKV, PagedAttention, StepRows
from tokenyard.serve.torch.load import StepLimits, longest_step, widest_step
from tokenyard.serve.torch.runner import ModelRunner

LENGTH = 16_384
BUDGET = 2_048
SEATS = 16

# ---- attention in pieces is attention


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is cut is cut into small parts, and no mask is kept."""
    monkeypatch.setattr(attention, "MOST_PLACES", 24)
    monkeypatch.setattr(attention, "FEW_SCORES", 100)
    monkeypatch.setattr(attention, "KEPT_SCORES", 0)
    monkeypatch.setattr(sampling, "MOST_AT_ONCE", 150)


def plain(query: Any, keys: Any, values: Any, start: int, window: int, scale: float, softcap: float | None) -> Any:
    """Attention of one row with all its scores: shapes ``[heads, tokens, size]`` and ``[places, KV heads, size]``."""
    shared = query.shape[0] // keys.shape[1]
    keys, values = (each.repeat_interleave(shared, 1).transpose(0, 1) for each in (keys, values))
    scores = query @ keys.transpose(1, 2) * scale
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    ask, there = start + torch.arange(query.shape[1])[:, None], torch.arange(keys.shape[1])
    beyond = (there > ask) | (there <= ask - window if window else torch.zeros((), dtype=torch.bool))
    return scores.masked_fill(beyond, float("-inf")).softmax(-1) @ values


@pytest.mark.smoke
@pytest.mark.parametrize("bound", [1, 100, 1 << 22])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("window", [0, 11])
@pytest.mark.parametrize(("heads", "num_keys"), [(4, 4), (4, 2), (6, 1)])
def test_attention_in_pieces_is_attention(
    heads: int, num_keys: int, window: int, softcap: float | None, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "FEW_SCORES", bound)
    monkeypatch.setattr(attention, "MOST_PLACES", bound)
    torch.manual_seed(heads)
    block, size, value_size = 4, 8, 8
    # Prompts from 0 on, chunks behind prefixes of every kind, drafts (a few tokens behind many), decodes.
    rows = StepRows(
        np.array([0, 0, 0, 1, 7, 8, 30, 30, 31, 9, 40, 3, 0]), np.array([9, 9, 33, 9, 20, 20, 4, 4, 4, 1, 1, 1, 1])
    )
    ends = rows.starts + rows.counts
    table = np.zeros((len(ends), 11), np.int32)
    held = -(-ends // block)
    for row, count in enumerate(held.tolist()):
        table[row, :count] = 1 + held[:row].sum() + np.arange(count)
    table[1, :2] = table[0, :2]  # a shared prefix
    options = {"dtype": torch.float64}
    shape = (int(table.max()) + 1, block, num_keys)
    memory = LayerKV(0, torch.randn(*shape, size, **options), torch.randn(*shape, value_size, **options))
    paged = PagedAttention(torch.nn.Module())
    paged.bind([memory])
    paged.begin([BlockBatch(table, rows, block, window, "cpu")])
    query = torch.randn(1, heads, int(rows.counts.sum()), size, **options)
    key, value = (torch.randn(1, num_keys, query.shape[2], each, **options) for each in (size, value_size))
    key[0, :, 9:17], value[0, :, 9:17] = key[0, :, :8], value[0, :, :8]
    found = paged.attend(0, query, key, value, 0.3, softcap)[0]
    done = 0
    for row, (start, count) in enumerate(zip(rows.starts.tolist(), rows.counts.tolist(), strict=True)):
        places = table[row, : held[row]]
        keys, values = (each[places].flatten(0, 1)[: start + count] for each in (memory.keys, memory.values))
        wanted = plain(query[0, :, done : done + count], keys, values, start, window, 0.3, softcap)
        assert torch.allclose(found[done : done + count].transpose(0, 1), wanted, atol=1e-12)
        done += count


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("budget", [7, 64])
def test_small_bounds_change_no_token(checkpoints: Callable[[str], Checkpoint], budget: int) -> None:
    for family in FAMILIES:
        check(checkpoints(family), PROMPTS, 6, max_num_batched_tokens=budget, max_num_seqs=5)


# ---- the steps that are run first


def test_the_longest_step_is_one_row_at_the_end() -> None:
    limits = StepLimits(BUDGET, SEATS, LENGTH, 0)
    starts, counts = longest_step(limits)
    assert (starts.tolist(), counts.tolist()) == ([LENGTH - BUDGET], [BUDGET])
    starts, counts = longest_step(msgspec.structs.replace(limits, max_model_len=1000))
    assert (starts.tolist(), counts.tolist()) == ([1, 1, 950], [999, 999, 50])


def test_the_widest_step_has_every_request_and_fills_a_gather() -> None:
    limits = StepLimits(BUDGET, 256, LENGTH, 3)
    starts, counts = widest_step(limits)
    assert (len(starts), counts.sum()) == (256, BUDGET)
    assert (starts + counts)[starts > 0].sum() == attention.MOST_PLACES
    assert len(widest_step(msgspec.structs.replace(limits, num_tokens=100))[0]) == 25  # drafts need their places


# ---- allocations, counted


class Allocated:
    """What torch allocates in this thread; ``peak`` is the most of it at a time."""

    def __init__(self) -> None:
        self.peak = 0
        activities = [torch.profiler.ProfilerActivity.CPU]
        self._profiler = torch.profiler.profile(activities=activities, profile_memory=True)

    def __enter__(self) -> Allocated:
        self._profiler.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._profiler.__exit__(*error)
        now = 0
        for event in self._profiler.profiler.kineto_results.events():
            if event.name() == "[memory]":
                now += event.nbytes()
                self.peak = max(self.peak, now)


class ThisThread:
    """A pool of threads that has none."""

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work())
        return done

    def shutdown(self, **_: bool) -> None:
        """Nothing is to be waited for."""


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Gemma2"])
def test_a_long_prompt_needs_no_more_than_was_measured(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = getattr(transformers, f"{family}Config")(
        vocab_size=1000,
        hidden_size=32,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        num_hidden_layers=2 if family == "Gemma2" else 1,
        sliding_window=500,
        max_position_embeddings=LENGTH + 64,
    )
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path)
    monkeypatch.setattr(sampling, "MOST_AT_ONCE", 1 << 16)  # else what is drawn from is larger than all else
    measured, run = Allocated(), load.run_largest_steps

    def run_measured(*arguments: Any) -> None:
        with measured:
            run(*arguments)

    monkeypatch.setattr("tokenyard.serve.torch.load.run_largest_steps", run_measured)
    core = load.load_engine(
        tmp_path,
        dtype="float32",
        device="cpu",
        max_num_seqs=SEATS,
        max_num_batched_tokens=BUDGET,
        gpu_memory_utilization=0.9,
        async_scheduling=False,
    )
    core.executor.shutdown()
    monkeypatch.setattr(core.executor, "thread", ThisThread())
    prompt = [3 + i * 7 % 990 for i in range(LENGTH)]
    wanted = SamplingParams(max_tokens=2, top_p=0.9, logprobs=1, ignore_eos=True)
    long = Request("long", prompt, SamplingParams(max_tokens=2, prompt_logprobs=1, ignore_eos=True))
    others = [Request(f"r{i}", prompt[i : i + 1 + LENGTH * i // 100], wanted) for i in range(SEATS)]
    with Allocated() as needed:
        serve(core, [long, *others])
    core.shutdown()
    results = LENGTH * 2 * 16  # ids and log-probabilities, which the client is given
    assert 0 < needed.peak - results <= measured.peak * 1.02  # a window's chunks begin anywhere in a block


def test_drafts_and_adapters_are_measured_with_the_model(
    checkpoints: Callable[[str], Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = checkpoints("llama"), checkpoints("draft")
    make_adapter(target, tmp_path / "poet")
    steps: list[tuple[int, int]] = []
    forward = ModelRunner.forward

    def counted(runner: ModelRunner, plan: SchedulerOutput, held: Any) -> None:
        steps.append((len(plan.slots), 0 if plan.drafts is None else int(plan.drafts.counts.sum())))
        forward(runner, plan, held)

    monkeypatch.setattr(ModelRunner, "forward", counted)
    drafts = {"model": str(draft.folder), "num_speculative_tokens": 3}
    options = {"enable_lora": True, "lora_modules": {"poet": tmp_path / "poet"}, "speculative_config": drafts}
    core = drive.load(target, num_gpu_blocks_override=None, max_num_batched_tokens=64, max_num_seqs=8, **options)
    try:
        assert steps == [(1, 0), (8, 24)]
        request = Request("a", PROMPTS[0], SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True))
        assert serve(core, [request]).tokens == [target.greedy(PROMPTS[0], 12)]
    finally:
        core.shutdown()


_LENGTHS = """
from pathlib import Path
from tokenyard.serve.torch.checkpoint import require_torch

torch = require_torch()
weights = torch.zeros(128, 64, dtype=torch.bfloat16)

def megabytes(first, last):
    for tokens in range(first, last):
        torch.nn.functional.linear(torch.zeros(tokens, 64, dtype=torch.bfloat16), weights)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

print(-megabytes(1, 100) + megabytes(100, 500))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory of a process is read as Linux tells it")
def test_steps_of_ever_other_lengths_gain_no_memory() -> None:
    """oneDNN keeps a kernel for each: 1,024 at most as it comes, about a megabyte apiece."""
    gained = subprocess.run([sys.executable, "-c", _LENGTHS], capture_output=True, text=True, check=True).stdout
    assert float(gained) < 60
