"""How tokens are drawn: distributions, seeds, penalties, log-probabilities, grammars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.engine.drive import generate, load, serve
from tests.engine.needs_torch import torch, transformers
from tests.engine.sizes import VOCABULARY
from tests.engine.tiny_models import Checkpoint

from tokenyard.core.request import Request, SamplingParams
from tokenyard.serve.torch.sampling import LogitRow, accepted, adjust, apply_bitmask, sample, token_logprobs, uniform

PROMPT = [7, 3, 9, 1, 4, 4, 8, 2, 6]


@pytest.fixture
def llama(checkpoints: Callable[[str], Checkpoint]) -> Checkpoint:
    return checkpoints("llama")


def _drawn(logits: Sequence[float], count: int, **fields: Any) -> Counter[int]:
    """Tokens drawn from the same logits with ``count`` seeds."""
    rows = torch.tensor([list(logits)] * count, dtype=torch.float64)
    params = [SamplingParams(**fields)] * count
    return Counter(sample(rows, params, np.arange(count), np.full(count, 3)).tolist())


# ---- draws


def test_draws_are_even() -> None:
    numbers = uniform(np.arange(20_000), np.arange(20_000) % 7)
    assert 0 <= numbers.min() < 0.001
    assert 0.999 < numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 50  # chi-square of 19 degrees: one in 7,000 is above
    neighbours = np.corrcoef(uniform(np.zeros(20_000, np.int64), np.arange(20_000))[:-1], numbers[1:])[0, 1]
    assert abs(neighbours) < 0.03


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    seeds, positions = np.array([1, 2, -5]), np.array([9, 9, 11])
    together = uniform(seeds, positions)
    assert len(set(together.tolist())) == 3
    for i in range(3):
        assert uniform(seeds[i : i + 1], positions[i : i + 1])[0] == together[i]


LOGITS = np.log([0.5, 0.25, 0.15, 0.07, 0.03])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [0.5, 0.25, 0.15, 0.07, 0.03]),
        ({"temperature": 0.5}, np.array([0.25, 0.0625, 0.0225, 0.0049, 0.0009]) / 0.3408),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_p": 0.7}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_p": 0.76}, np.array([0.5, 0.25, 0.15, 0, 0]) / 0.9),
        ({"min_p": 0.2}, np.array([0.5, 0.25, 0.15, 0, 0]) / 0.9),
        ({"top_k": 3, "top_p": 0.6}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"temperature": 0.0}, [1, 0, 0, 0, 0]),
        ({"top_k": 1}, [1, 0, 0, 0, 0]),
        ({"temperature": 1e-9}, [1, 0, 0, 0, 0]),
    ],
    ids=str,
)
def test_distributions(fields: dict[str, Any], expected: Sequence[float]) -> None:
    count = 20_000
    found = _drawn(LOGITS.tolist(), count, **fields)
    for token, probability in enumerate(expected):
        spread = 4 * (probability * (1 - probability) / count) ** 0.5
        assert abs(found[token] / count - probability) <= spread


def test_what_is_barred_is_never_drawn() -> None:
    logits = [0.0, -np.inf, 0.0, -np.inf]
    assert set(_drawn(logits, 5000)) == {0, 2}
    assert set(_drawn(logits, 5000, top_p=0.99)) == {0, 2}


def test_a_row_is_drawn_as_if_it_were_alone() -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, 40, dtype=torch.float64)
    fields: list[dict[str, Any]] = [{}, {"top_k": 4}, {"temperature": 0.0}, {"top_p": 0.5}, {"min_p": 0.1}, {}]
    params = [SamplingParams(**each) for each in fields]
    seeds, positions = np.arange(6) + 100, np.arange(6) * 3
    together = sample(logits.clone(), params, seeds, positions)
    alone = [sample(logits[i : i + 1].clone(), [params[i]], seeds[i : i + 1], positions[i : i + 1]) for i in range(6)]
    assert together.tolist() == np.concatenate(alone).tolist()


def test_right_drafts_are_accepted_up_to_the_first_wrong_one() -> None:
    tokens = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, -1, -1], [4, 5, 6]])
    drafts = np.array([[1, 2], [1, 9], [9, 2], [1, 7], [4, 5]])
    assert accepted(tokens, drafts, np.array([2, 2, 2, 0, 1])).tolist() == [3, 2, 1, 1, 2]


# ---- penalties


def test_penalties_are_those_of_transformers() -> None:
    torch.manual_seed(2)
    tokens = np.array([3, 3, 5, 8, 8, 8, 2])
    logits = torch.randn(12, dtype=torch.float64)
    ours = logits.clone()
    adjust(ours, LogitRow(SamplingParams(repetition_penalty=1.7), tokens, num_prompt=3))
    process = transformers.RepetitionPenaltyLogitsProcessor(1.7)
    assert torch.equal(ours, process(torch.tensor([tokens.tolist()]), logits[None].clone())[0])


def test_penalties_count_the_output_alone() -> None:
    logits = torch.zeros(10, dtype=torch.float64)
    row = LogitRow(SamplingParams(presence_penalty=0.5, frequency_penalty=0.25), np.array([1, 2, 3, 3, 4]), 2)
    adjust(logits, row)
    assert logits.tolist() == [0, 0, 0, -1.0, -0.75, 0, 0, 0, 0, 0]


def test_biases_and_min_tokens() -> None:
    logits = torch.zeros(6, dtype=torch.float64)
    params = SamplingParams(logit_bias={1: 2.5, 4: -1.0, 99: 7.0}, min_tokens=2, eos_token_id=3, stop_token_ids=(5, 77))
    adjust(logits, LogitRow(params, np.array([0, 0, 0]), 2))
    assert logits.tolist() == [0, 2.5, 0, -np.inf, -1.0, -np.inf]
    adjust(again := torch.zeros(6), LogitRow(params, np.array([0, 0, 0, 0]), 2))
    assert again.tolist() == [0, 2.5, 0, 0, -1.0, 0]


def test_a_bitmask_bars_what_is_not_set() -> None:
    logits = torch.zeros(2, 40)
    apply_bitmask(logits, np.array([[1 << 3, 1 << 7], [-1, 0]], np.int32))
    assert (logits[0] == 0).nonzero().flatten().tolist() == [3, 39]
    assert (logits[1] == 0).nonzero().flatten().tolist() == list(range(32))


# ---- through the engine


def test_a_seed_gives_the_same_tokens_whoever_shares_the_batch(llama: Checkpoint) -> None:
    drawn: dict[str, Any] = {"temperature": 1.3, "seed": 11, "ignore_eos": True}
    (alone,) = generate(llama, [PROMPT], 20, params=drawn).tokens
    core = load(llama, max_num_batched_tokens=7)
    try:
        others = [Request(f"o{i}", [i, 2, 3], SamplingParams(max_tokens=9, temperature=0.9)) for i in range(4)]
        mine = Request("mine", PROMPT, SamplingParams(max_tokens=20, **drawn))
        assert serve(core, [*others, mine]).tokens[-1] == alone
    finally:
        core.shutdown()
    assert alone != llama.greedy(PROMPT, 20)


def test_without_a_seed_requests_differ_and_runs_do_not(llama: Checkpoint) -> None:
    drawn = {"temperature": 2.0, "ignore_eos": True}
    first, second = generate(llama, [PROMPT, PROMPT], 20, params=drawn).tokens
    assert first != second
    assert generate(llama, [PROMPT, PROMPT], 20, params=drawn).tokens == [first, second]
    assert generate(llama, [PROMPT], 20, params=drawn, seed=1).tokens != [first]


@pytest.mark.parametrize("fields", [{}, {"top_p": 0.8}, {"frequency_penalty": 1.0, "repetition_penalty": 1.3}], ids=str)
def test_drafts_change_no_drawn_token(llama: Checkpoint, checkpoints: Any, fields: dict[str, Any]) -> None:
    drawn = {"temperature": 1.0, "ignore_eos": True, **fields}
    plain = generate(llama, [PROMPT, [5, 6]], 30, params=drawn).tokens
    for drafter in (
        {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2},
        {"model": str(llama.folder), "num_speculative_tokens": 3},
    ):
        run = generate(llama, [PROMPT, [5, 6]], 30, params=drawn, speculative_config=drafter)
        assert run.tokens == plain
        assert run.num_drafts > 0


def test_penalties_through_the_engine_are_those_of_transformers(llama: Checkpoint) -> None:
    run = generate(llama, [PROMPT], 25, params={"temperature": 0.0, "repetition_penalty": 1.5, "ignore_eos": True})
    ids = torch.tensor([PROMPT])
    wanted = llama.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=25, do_sample=False, repetition_penalty=1.5
    )
    assert run.tokens[0] == wanted[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("drafter", [None, {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}])
def test_logprobs_are_those_of_the_model(llama: Checkpoint, drafter: dict[str, Any] | None) -> None:
    params = {"temperature": 0.0, "logprobs": 3, "ignore_eos": True}
    run = generate(llama, [PROMPT], 20, params=params, speculative_config=drafter)
    told = [each.logprobs for each in run.extras["r0"]]
    ids = np.concatenate([each.token_ids for each in told])
    tokens = PROMPT + run.tokens[0]
    wanted = llama.logits(tokens)[len(PROMPT) - 1 : -1].log_softmax(-1)
    best = wanted.topk(3)
    assert ids[:, 0].tolist() == run.tokens[0]
    assert ids[:, 1:].tolist() == best.indices.tolist()
    assert np.concatenate([each.ranks for each in told]).tolist() == [1] * 20
    found = np.concatenate([each.logprobs for each in told])
    assert np.allclose(found[:, 1:], best.values.numpy(), atol=1e-6)
    assert np.allclose(found[:, 0], found[:, 1])


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 5}], ids=["whole", "chunks"])
def test_prompt_logprobs_are_those_of_the_model(llama: Checkpoint, options: dict[str, Any]) -> None:
    prompt = PROMPT + PROMPT[::-1]
    params = {"temperature": 0.0, "prompt_logprobs": 2, "ignore_eos": True}
    run = generate(llama, [prompt, prompt], 4, params=params, **options)
    for name in ("r0", "r1"):
        (told,) = [each.prompt_logprobs for each in run.extras[name] if each.prompt_logprobs is not None]
        wanted = token_logprobs(llama.logits(prompt)[:-1], np.array(prompt[1:]), 2)
        assert told.token_ids.tolist() == wanted.token_ids.tolist()
        assert told.ranks.tolist() == wanted.ranks.tolist()
        assert np.allclose(told.logprobs, wanted.logprobs, atol=1e-6)


class OnlyMultiplesOf:
    """A grammar: tokens have to be multiples of a number that is the position in the output plus two."""

    is_ready = True

    def __init__(self) -> None:
        self.done = 0

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        fits = all(token % (self.done + i + 2) == 0 for i, token in enumerate(tokens))
        self.done += len(tokens)
        return fits

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        fitting = []
        for i, token in enumerate(tokens):
            if token % (self.done + i + 2):
                break
            fitting.append(token)
        return fitting

    def bitmask(self, drafts: Sequence[int]) -> Any:
        rows = []
        for i in range(len(drafts) + 1):
            allowed = np.arange(64) % (self.done + i + 2) == 0
            rows.append(np.packbits(allowed, bitorder="little").view(np.int32))
        return np.stack(rows)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("drafts", [False, True])
def test_grammars_are_followed(llama: Checkpoint, is_async: bool, drafts: bool) -> None:
    drafter = {"model": str(llama.folder), "num_speculative_tokens": 3} if drafts else None
    core = load(llama, async_scheduling=is_async, speculative_config=drafter)
    try:
        wanted = SamplingParams(max_tokens=10, temperature=0.0, ignore_eos=True)
        bound = Request("bound", PROMPT, wanted, structured_output=OnlyMultiplesOf())
        free = Request("free", PROMPT, wanted)
        by_grammar, freely = serve(core, [bound, free]).tokens
    finally:
        core.shutdown()
    assert all(token % (i + 2) == 0 for i, token in enumerate(by_grammar))
    assert freely == llama.greedy(PROMPT, 10)
    # As transformers would, one token after the other.
    tokens = list(PROMPT)
    for i in range(10):
        logits = llama.logits(tokens)[-1]
        logits[[token for token in range(VOCABULARY) if token % (i + 2)]] = -np.inf
        tokens.append(int(logits.argmax()))
    assert by_grammar == tokens[len(PROMPT) :]
