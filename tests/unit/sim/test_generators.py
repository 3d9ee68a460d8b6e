"""Built-in workloads: seeded, chained, with the prefixes they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenyard.errors import ConfigError
from tokenyard.workload.generators import (
    AgenticOptions,
    ChatOptions,
    CompletionOptions,
    RagOptions,
    agentic,
    chat,
    completion,
    rag,
)
from tokenyard.workload.load import GENERATORS, read_workload
from tokenyard.workload.record import Workload
from tokenyard.workload.tokens import output_tokens

SMALL: dict[str, Workload] = {
    "agentic": agentic(AgenticOptions(num_sessions=12)),
    "chat": chat(ChatOptions(num_sessions=30)),
    "completion": completion(CompletionOptions(num_requests=200)),
    "rag": rag(RagOptions(num_requests=60)),
}


def facts(workload: Workload) -> list[tuple[object, ...]]:
    return [
        (r.request_id, len(r.prompt), r.max_tokens, r.arrival_time, r.after, r.gap, r.output_seed) for r in workload
    ]


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_same_seed_same_workload(name: str) -> None:
    one, same, other = (read_workload(name, limit=9, seed=seed) for seed in (4, 4, 5))
    assert facts(one) == facts(same)
    assert facts(one) != facts(other)
    assert one.requests[-1].prompt.tokens().tolist() == same.requests[-1].prompt.tokens().tolist()
    assert one.name == name


@pytest.mark.parametrize(("name", "usual"), [("agentic", 0.5), ("chat", 4.0)])
def test_sessions_start_at_the_session_rate(name: str, usual: float) -> None:
    """A higher one moves the starts closer together, and nothing else."""
    plain, faster = read_workload(name, limit=9), read_workload(name, limit=9, session_rate=5 * usual)
    starts, closer = ([each.arrival_time for each in workload if not each.after] for workload in (plain, faster))
    assert starts[-1] > 0
    assert [5 * start for start in closer] == pytest.approx(starts)
    assert [fact[:3] + fact[4:] for fact in facts(plain)] == [fact[:3] + fact[4:] for fact in facts(faster)]


@pytest.mark.parametrize("name", ["agentic", "chat"])
def test_the_next_prompt_holds_the_last_answer(name: str) -> None:
    workload = SMALL[name]
    by_id = {each.request_id: each for each in workload}
    followers = [each for each in workload if each.after]
    assert len(followers) == {"agentic": 108, "chat": 78}[name]
    for later in followers[:20]:
        earlier = by_id[later.after[0]]
        prompt = earlier.prompt.tokens()
        positions = np.arange(len(prompt), len(prompt) + earlier.max_tokens)
        said = output_tokens(np.full(len(positions), earlier.output_seed), positions)
        known = [*prompt.tolist(), *said.tolist()]
        assert later.prompt.tokens()[: len(known)].tolist() == known
        assert later.num_prompt_tokens > len(known)


@pytest.mark.parametrize(("name", "system"), [("agentic", 3000), ("chat", 180), ("rag", 300)])
def test_the_system_prompt_is_shared_and_the_rest_is_not(name: str, system: int) -> None:
    firsts = [each.prompt.tokens() for each in SMALL[name] if not each.after]
    assert len({tokens[:system].tobytes() for tokens in firsts}) == 1
    if name != "rag":
        assert len({tokens[: system + 2].tobytes() for tokens in firsts}) == len(firsts)


def test_agents_end_once_and_stay_within_the_context() -> None:
    options = AgenticOptions(num_sessions=40, max_context=7000)
    workload = agentic(options)
    assert sum(each.is_last_step for each in workload) == 40 == workload.num_jobs
    assert all(len(each.prompt) + each.max_tokens <= 7000 for each in workload)
    assert {each.this_func_call for each in workload} == {None, "shell", "search", "edit", "read_file", "run_tests"}


def test_an_agent_that_reaches_the_end_of_its_context_calls_no_tool_then() -> None:
    requests = agentic(AgenticOptions(num_sessions=20, max_context=5000)).requests
    assert any(each.this_func_call for each in requests)
    assert not [each.request_id for each in requests if each.is_last_step and each.this_func_call]


def test_a_first_turn_is_cut_down_to_the_context() -> None:
    options = ChatOptions(
        num_sessions=60, message=(400.0, 1.0), output=(400.0, 1.0), system_tokens=100, max_context=500
    )
    workload = chat(options)
    assert workload.num_jobs == 60
    assert max(len(each.prompt) + each.max_tokens for each in workload) == 500


def test_completion_is_bursty_and_moves_a_cursor() -> None:
    workload = completion(CompletionOptions(num_requests=2000))
    arrivals = np.array([each.arrival_time for each in workload])
    assert len(arrivals) == 2000
    assert (np.diff(arrivals) >= 0).all()
    per_second = np.bincount(arrivals.astype(int))
    assert per_second.var() / per_second.mean() > 3
    bursts: dict[str | None, list[Any]] = {}
    for each in workload:
        bursts.setdefault(each.job_id, []).append(each)
    burst = max(bursts.values(), key=len)
    first, last = burst[0].prompt.tokens(), burst[-1].prompt.tokens()
    assert (len(first), len(last)) == (88, 711)
    assert last[: len(first)].tolist() == first.tolist()


def test_popular_documents_share_prefixes() -> None:
    openings = [each.prompt.tokens()[:1000].tobytes() for each in SMALL["rag"]]
    assert (len(set(openings)), len(openings)) == (11, 60)


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_limit_is_sessions_or_requests(name: str) -> None:
    workload = read_workload(name, limit=5)
    assert (workload.num_jobs if name in ("agentic", "chat") else len(workload)) == 5


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (AgenticOptions, "num_sessions", 0),
        (AgenticOptions, "rate", 0),
        (AgenticOptions, "max_context", 3001),
        (AgenticOptions, "tool_time", (0.0, 1.0)),
        (AgenticOptions, "turns", (1.0,)),
        (ChatOptions, "mean_turns", -1),
        (ChatOptions, "seed", 1.5),
        (CompletionOptions, "spacing", float("nan")),
        (CompletionOptions, "num_requests", True),
        (RagOptions, "documents", 0),
        (RagOptions, "zipf", "1"),
    ],
)
def test_options_that_cannot_work_are_named(options: Any, field: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        options(**{field: value})
    assert caught.value.field == field
