"""The scheduler as an environment: Gymnasium's own checker, an agent that does nothing, and one that does harm."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

import tokenyard as ty
from tokenyard.questions.run import RunResult

pytest.importorskip("gymnasium", reason="the environment needs tokenyard[gym]")

import gymnasium
from gymnasium.utils.env_checker import check_env

from tokenyard.gym import OBSERVED, SchedulingEnv

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=8)


def load(seed: int) -> ty.Workload:
    w = ty.WorkloadBuilder("load", seed=seed)
    for at in w.poisson(rate=4, n=8):
        w.request(at=at, prompt=300, output=20)
    return w.build()


def episode(env: SchedulingEnv, action: tuple[int, int, int], seed: int = 0) -> tuple[float, RunResult]:
    env.reset(seed=seed)
    total = 0.0
    while True:
        observation, reward, ended, cut, info = env.step(np.array(action))
        assert observation.shape == (len(OBSERVED),)
        assert not cut
        total += reward
        if ended:
            return total, info["run"]


def test_it_is_an_environment() -> None:
    check_env(SchedulingEnv(load, DEPLOYMENT), skip_render_check=True)


def test_the_reward_is_the_time_that_requests_took() -> None:
    deployment = DEPLOYMENT.with_(latency="constant:0.02")  # without a front end, where an agent decides nothing
    total, run = episode(SchedulingEnv(load, deployment), (7, 4, 0))
    assert run.result.num_finished == 8
    assert run.report.e2e_ms.mean is not None
    assert total == pytest.approx(-run.report.e2e_ms.mean * 8 / 1e3, rel=0.05)
    plain = ty.run(load(0), deployment)
    assert run.report.e2e_ms == plain.report.e2e_ms, "an agent that bounds nothing decides as vLLM"


CHUNKED = DEPLOYMENT.with_(max_num_seqs=4, max_num_batched_tokens=256)


def long_prompts(seed: int) -> ty.Workload:
    w = ty.WorkloadBuilder("long prompts", seed=seed)
    for at in w.poisson(rate=4, n=8):
        w.request(at=at, prompt=600, output=20)
    return w.build()


def watched(action: tuple[int, int, int]) -> tuple[list[list[float]], RunResult]:
    """The observations of an episode that is always decided alike, and what came of it."""
    env = SchedulingEnv(long_prompts, CHUNKED)
    observation, _ = env.reset(seed=0)
    seen: list[list[float]] = []
    while True:
        seen.append(observation.tolist())
        observation, _, ended, _, info = env.step(np.array(action))
        if ended:
            return seen, info["run"]


def test_the_agent_sees_what_there_is_before_each_step() -> None:
    seen, run = watched((1, 4, 0))
    columns = dict(zip(OBSERVED, zip(*seen, strict=True), strict=True))
    assert list(columns["running"]) == run.steps["running"].tolist()
    assert list(columns["waiting"]) == run.steps["waiting"].tolist()
    blocks = CHUNKED.resolve().cache.num_gpu_blocks
    free = np.array(columns["free_blocks"]) * blocks
    assert np.abs(free - run.steps["free_blocks"]).max() < 2, "the null block is not free"
    assert columns["step_s"][1:] == pytest.approx(np.diff(run.steps["start_s"]), rel=1e-3)
    assert max(columns["longest_wait_s"]) > 0.1
    assert {0.0, 1.0, 2.0} == set(columns["decoding"])


def test_a_share_of_the_tokens_is_all_that_prompts_get() -> None:
    for quarters in (1, 2, 4):
        steps = watched((3, quarters, 0))[1].steps
        assert max(steps["scheduled_tokens"] - steps["running"] - steps["admitted"]) < 64 * quarters
        assert max(steps["scheduled_tokens"]) >= 64 * quarters


def test_those_that_decode_wait_where_the_agent_says_so() -> None:
    """Steps that go on with a prompt beside requests that decode: how many of those are scheduled with it."""

    def beside(hold: int) -> list[float]:
        seen, run = watched((3, 4, hold))
        columns = dict(zip(OBSERVED, np.array(seen).T, strict=True))
        prompts = run.steps["running"] - columns["decoding"]
        others = run.steps["scheduled_requests"] - run.steps["admitted"] - prompts
        decoded: list[float] = others[(prompts > 0) & (columns["decoding"] > 0)].tolist()
        return decoded

    assert len(beside(0)) > 2
    assert min(beside(0)) > 0
    assert len(beside(1)) > 2
    assert set(beside(1)) == {0}


def test_a_reward_may_be_another() -> None:
    total, run = episode(SchedulingEnv(load, DEPLOYMENT, reward=lambda seen: seen.observation[0] / 8), (7, 4, 0))
    assert total == pytest.approx(float(run.steps["running"][1:].sum()) / 8)


def test_fewer_seats_cost_time_and_episodes_are_the_same_each_time() -> None:
    env = SchedulingEnv(load, DEPLOYMENT)
    free, one = episode(env, (7, 4, 0))[0], episode(env, (0, 4, 0))[0]
    assert one < free
    assert episode(env, (0, 4, 0))[0] == one
    assert episode(env, (0, 4, 0), seed=1)[0] != one


def test_without_a_seed_the_next_workload_is_another_one() -> None:
    """And the same one in every run: it is drawn by what the last seed made."""
    drawn: list[int] = []

    def noted(seed: int) -> ty.Workload:
        drawn.append(seed)
        return load(seed)

    env = SchedulingEnv(noted, DEPLOYMENT)
    for seed in (5, None, None, 5, None):
        env.reset(seed=seed)
    env.close()
    assert drawn[0] == drawn[3] == 5
    assert drawn[1] == drawn[4]
    assert len({*drawn[:3]}) == 3


def test_a_built_in_workload_keeps_the_seed_that_it_was_given() -> None:
    def first(env: SchedulingEnv, seed: int | None) -> list[float]:
        env.reset(seed=seed)
        seen = [env.step(np.array((7, 4, 0)))[0].tolist() for _ in range(9)]
        env.close()
        return [value for each in seen for value in each]

    fixed = SchedulingEnv("chat", DEPLOYMENT, limit=2, seed=3)
    free = SchedulingEnv("chat", DEPLOYMENT, limit=2)
    assert first(fixed, None) == first(fixed, None) == first(free, 3)
    assert first(free, None) != first(free, None)


@pytest.mark.parametrize("action", [(8, 4, 0), (0, 5, 0), (0, 0, 2), (-1, 0, 0), (0, 0)])
def test_an_action_that_is_none_is_refused(action: tuple[int, ...]) -> None:
    env = SchedulingEnv(load, DEPLOYMENT)
    env.reset(seed=0)
    with pytest.raises(ty.ConfigError, match=r"action = .*: give \[seats, prompts, hold\] below \[8, 5, 2\]"):
        env.step(np.array(action))
    env.step(np.array((3, 2, 1)))
    env.close()


def test_an_episode_may_be_left_and_errors_reach_the_agent() -> None:
    env = SchedulingEnv(load, DEPLOYMENT)
    env.reset(seed=0)
    env.step(np.array((3, 2, 1)))
    env.reset(seed=1)
    env.close()
    with pytest.raises(ty.ConfigError, match="reset"):
        env.step(np.array((3, 2, 1)))
    env = SchedulingEnv("no such workload", DEPLOYMENT)
    with pytest.raises(ty.TokenyardError):
        env.reset()
    with pytest.raises(ty.ConfigError, match="there is no episode"):
        env.step(np.array((3, 2, 1)))


def test_it_is_made_by_name_and_copied_at_any_place() -> None:
    made = gymnasium.make("tokenyard/Scheduling-v0", workload=load, deployment=DEPLOYMENT)
    made.reset(seed=3)
    for _ in range(4):
        made.step(made.action_space.sample())
    action = np.array([3, 4, 0])
    copies = [deepcopy(made) for _ in range(2)]
    after = [each.step(action) for each in (*copies, made)]
    assert all(np.array_equal(each[0], after[0][0]) and each[1:3] == after[0][1:3] for each in after)
    for each in (*copies, made):
        each.close()


def test_observations_and_rewards_of_ones_own() -> None:
    space = gymnasium.spaces.Box(0.0, 1e6, (1,), np.float32)
    env = SchedulingEnv(
        load,
        DEPLOYMENT,
        observe=lambda view: np.array([len(view.state.waiting)], np.float32),
        observation_space=space,
        reward=lambda view: -float(view.observation[0]),
    )
    first, _ = env.reset(seed=0)
    assert first.shape == (1,)
    seen, reward, *_ = env.step(np.array([0, 4, 0]))
    assert reward == -float(seen[0])
    env.close()
    with pytest.raises(ty.ConfigError, match="observation_space together"):
        SchedulingEnv(load, DEPLOYMENT, observation_space=space)
