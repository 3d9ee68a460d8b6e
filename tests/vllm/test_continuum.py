"""ContinuumScheduler without a model: a policy of ours by name, what a turn says of itself, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from recorder import host
from recorder.plan import Engine, Planned
from tokenyard.errors import ConfigError
from tokenyard.vllm import AsyncContinuumScheduler, ContinuumScheduler

pytestmark = pytest.mark.smoke

ENGINE = Engine(
    max_num_seqs=8, max_num_batched_tokens=512, max_model_len=512, num_blocks=40, block_size=16, policy="fcfs"
)
HISTORY = [i % 50 for i in range(300)]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds ContinuumScheduler with a policy; time stands still."""

    def made(policy: str | None, engine: Engine = ENGINE) -> host.Host:
        monkeypatch.setattr(host, "Scheduler", ContinuumScheduler)
        monkeypatch.setattr(host, "AsyncScheduler", AsyncContinuumScheduler)
        if policy is not None:
            monkeypatch.setenv("TOKENYARD_POLICY", policy)
        built = host.build_host(engine, log_stats=False)
        built.scheduler.core.clock = lambda: 1.0
        return built

    return made


def ask(built: host.Host, name: str, prompt: list[int], **said: Any) -> list[int]:
    """One request from its arrival to its end, alone; returns its prefix hits and tokens."""
    scheduler = built.scheduler
    request = host.make_request(Planned(id=name, prompt=prompt, max_tokens=4, arrival_step=0), built.block_hasher)
    request.sampling_params.extra_args = said or None
    scheduler.add_request(request)
    hits = None
    tokens: list[int] = []
    while scheduler.has_unfinished_requests():
        output = scheduler.schedule()
        for new in output.scheduled_new_reqs:
            hits = new.num_computed_tokens
        ids = list(output.num_scheduled_tokens)
        answers = scheduler.update_from_output(output, host.model_output(ids, [[7] for _ in ids]))
        tokens += [token for client in answers.values() for each in client.outputs for token in each.new_token_ids]
    assert hits is not None
    return [hits, *tokens]


def second_turn_hits(built: host.Host, **said: Any) -> int:
    """Cached tokens of a second turn whose first was followed by others that fill the cache."""
    _, *answer = ask(built, "turn-1", HISTORY, job_id="job", **said)
    for i in range(3):
        ask(built, f"other-{i}", [60 + i] * 250)
    return ask(built, "turn-2", [*HISTORY, *answer, *[9] * 20], job_id="job", is_last_step=True)[0]


def test_pins_keep_the_first_turn(build: Any) -> None:
    assert second_turn_hits(build("continuum-fixed"), this_func_call="pytest") >= 288
    assert second_turn_hits(build("fcfs"), this_func_call="pytest") < 100


def test_last_step_leaves_no_pin(build: Any) -> None:
    built = build("continuum-fixed")
    ask(built, "turn-1", HISTORY, job_id="job", this_func_call="pytest", is_last_step=True)
    assert len(built.scheduler.core.pins) == 0
    ask(built, "turn-2", HISTORY, job_id="other", this_func_call="pytest")
    assert len(built.scheduler.core.pins) == 1


def test_default_is_continuum(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENYARD_POLICY", raising=False)
    scheduler = build(None).scheduler
    assert scheduler.core.config.policy == "continuum"
    assert scheduler.vllm_config.scheduler_config.policy == "continuum"


def test_any_policy_of_ours(build: Any) -> None:
    scheduler = build("shortest-remaining").scheduler
    assert type(scheduler.core.policy).__name__ == "ShortestRemaining"


def test_unknown_policy_is_named(build: Any) -> None:
    with pytest.raises(ConfigError, match=r"TOKENYARD_POLICY.*no-such.*continuum-ttl"):
        build("no-such")


def test_priority_beside_a_policy_is_refused(build: Any) -> None:
    from dataclasses import replace

    with pytest.raises(ConfigError, match=r"--scheduling-policy.*priority"):
        build("continuum-ttl", replace(ENGINE, policy="priority"))


@pytest.mark.parametrize(
    ("said", "field"), [({"is_last_step": "perhaps"}, "is_last_step"), ({"this_func_call": 7}, "this_func_call")]
)
def test_extra_arguments_that_cannot_work_end_the_request(build: Any, said: dict[str, Any], field: str) -> None:
    built = build("continuum-fixed")
    scheduler = built.scheduler
    request = host.make_request(Planned(id="q", prompt=[1] * 20, max_tokens=4, arrival_step=0), built.block_hasher)
    request.sampling_params.extra_args = said
    scheduler.add_request(request)
    assert field in str(scheduler.last_refusal)
    assert not scheduler.has_unfinished_requests()
    answers = scheduler.update_from_output(scheduler.schedule(), host.model_output([], []))
    [told] = [each for client in answers.values() for each in client.outputs]
    assert (told.request_id, told.finish_reason.name) == ("q", "ERROR")
    assert scheduler.last_refusal is None
