"""Servers in twenty-odd known states, as their /metrics shows them: made by replays on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import prometheus_client

import tokenyard as ty
from tokenyard.errors import StuckError
from tokenyard.serve.metrics import MetricsObserver

EVERY = 2.0
BEGIN = 1_700_000_000.0
QWEN = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_model_len=32768)


class Scraped(MetricsObserver):
    """Metrics of one engine at every second moment of the replay's clock."""

    def __init__(self, engine: int, scrapes: dict[float, list[bytes]], **known: Any) -> None:
        super().__init__(model_name="m", max_model_len=32768, engine=engine, **known)
        self._scrapes, self.moment = scrapes, 0.0

    def step_started(self, ts: float, step: int, state: Any) -> None:
        while ts >= self.moment:
            self.scrape()

    def scrape(self) -> None:
        self._scrapes.setdefault(self.moment, []).append(prometheus_client.generate_latest(self.registry))
        self.moment += EVERY


class Hoarder(ty.Policy):
    """Keeps the blocks of all that ended."""

    def keeps_blocks(self, now: float, request: ty.Request) -> bool:
        return True


@dataclass
class Server:
    """A replay that is watched for ten seconds."""

    workload: ty.Workload
    deployment: ty.Deployment = QWEN
    since: float = 20.0
    seconds: float = 10.0
    more: dict[str, Any] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
    still: bool = False
    """What follows the last step is as it was: nothing moves any more."""

    def scrapes(self) -> bytes:
        found: dict[float, list[bytes]] = {}
        made: list[Scraped] = []
        blocks = self.deployment.resolve().settled.plan.num_blocks
        info = {"num_gpu_blocks": blocks, "block_size": 16, "enable_prefix_caching": True}

        def observer() -> Scraped:
            made.append(Scraped(len(made), found, cache_info=info, **self.known))
            return made[-1]

        with suppress(StuckError):
            ty.run(self.workload, self.deployment, observer=observer, rows=False, **self.more)
        until = self.since + self.seconds
        for each in made:
            since = self.since if not self.still else each.moment
            until = max(until, since + self.seconds)
        for each in made:
            while each.moment <= until:
                each.scrape()
        first = until - self.seconds
        return joined({at: texts for at, texts in found.items() if first <= at <= until})


def joined(found: dict[float, list[bytes]]) -> bytes:
    return b"".join(b"# scraped_at %.3f\n" % (BEGIN + at) + b"\n".join(texts) for at, texts in sorted(found.items()))


def written(*moments: str) -> bytes:
    """Scrapes by hand, two seconds apart."""
    return joined({EVERY * place: [text.encode() + b"\n"] for place, text in enumerate(moments)})


def load(rate: float, seconds: float = 34.0, *, prompt: float = 200, output: float = 150, **more: Any) -> ty.Workload:
    w = ty.WorkloadBuilder("load", seed=1)
    for place, at in enumerate(w.poisson(rate=rate, n=int(rate * seconds))):
        own = {name: value(place) if callable(value) else value for name, value in more.items()}
        w.request(
            at=at, prompt=round(prompt * (0.5 + w.rng.random())), output=round(output * (0.5 + w.rng.random())), **own
        )
    return w.build()


# ---------------------------------------------------------------------------------------------------------------------
# The states, by name: how it is made, and what is true of it.


@dataclass(frozen=True)
class State:
    """A server, and what is known to be wrong with it."""

    name: str
    made: Callable[[], bytes]
    code: str
    reason: str | None = None
    cause: str | None = None
    """The first cause, where it is not that requests are held back."""


def _sized(**settings: Any) -> ty.Deployment:
    return QWEN.with_(**settings)


def _clients(number: int, output: int = 300) -> ty.Workload:
    """Clients who ask again as soon as they are answered."""
    w = ty.WorkloadBuilder("clients", seed=2)
    for i in range(number):
        session = w.session(at=0.02 * i)
        for _ in range(12):
            session.turn(user=150, output=output)
    return w.build()


def _prefixes(salted_from: float | None, pool: int) -> Server:
    """Prompts with one long beginning; from a moment on something stands in front of it."""
    w = ty.WorkloadBuilder("prefixes", seed=3)
    shared = w.text(1500)
    for at in w.poisson(rate=3, n=120):
        own = w.text(100)
        is_salted = salted_from is not None and at >= salted_from
        w.request(at=at, prompt=own + shared if is_salted else shared + own, output=60)
    return Server(w.build(), _sized(num_gpu_blocks_override=pool))


def _burst() -> ty.Workload:
    w = ty.WorkloadBuilder("burst", seed=4)
    for i in range(60):
        w.request(at=2.0 if i < 40 else i - 38.0, prompt=200, output=60)
    return w.build()


def _hoarded() -> Server:
    w = ty.WorkloadBuilder("hoarded")
    for i in range(6):
        w.request(at=i, prompt=1600, output=50, job_id=f"job-{i}")
    return Server(
        w.build(), _sized(num_gpu_blocks_override=400, max_model_len=4096), more={"policy": Hoarder}, still=True
    )


def _still(running: int, waiting: int, kv: float, **more: str) -> Callable[[], bytes]:
    lines = [
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}',
        f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}',
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {kv}',
        'vllm:generation_tokens_total{engine="0",model_name="m"} 81234',
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 912345',
        *more.values(),
    ]
    return lambda: written(*["\n".join(lines)] * 7)


def _deferred(**more: str) -> Callable[[], bytes]:
    """Tokens come, and most of those that wait do so for something of their own."""

    def moment(place: int) -> str:
        lines = [
            'vllm:num_requests_running{engine="0",model_name="m"} 12',
            'vllm:num_requests_waiting{engine="0",model_name="m"} 30',
            'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1',
            'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 29',
            'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2',
            f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {1000 + 600 * place}',
            *(each.format(place=100 * place) for each in more.values()),
        ]
        return "\n".join(lines)

    return lambda: written(*map(moment, range(6)))


def _alone(seats: int, rate: float) -> Server:
    """Two replicas behind a router that sends a session to its engine: one session is most of the traffic."""
    w = ty.WorkloadBuilder("hot", seed=5)
    for place, at in enumerate(w.poisson(rate=rate, n=int(rate * 34))):
        w.request(at=at, prompt=200, output=150, job_id="big" if place % 8 else f"j{place}")
    return Server(w.build(), _sized(replicas=2, router="session-affinity", max_num_seqs=seats))


ASLEEP = "\n".join(
    f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="{state}"}} {value}'
    for state, value in (("awake", 0), ("weights_offloaded", 1))
)
LORA = 'vllm:lora_requests_info{{max_lora="2",running_lora_adapters="a,b",waiting_lora_adapters="c,a"}} 1.7e9'
STATES = [
    State(
        "nothing comes",
        lambda: written(*['vllm:num_requests_running{engine="0"} 0\nvllm:num_requests_waiting{engine="0"} 0'] * 3),
        "empty",
    ),
    State("light chat", Server(load(1.0)).scrapes, "idle"),
    State("busy, no queue", Server(load(6.0)).scrapes, "idle"),
    State("closed loop of 16 clients, seats to spare", Server(_clients(16), since=16).scrapes, "idle"),
    State("a burst that is over", Server(_burst(), since=12).scrapes, "idle"),
    State("seats", Server(_clients(24), _sized(max_num_seqs=16), since=16).scrapes, "held_back", "max_num_seqs"),
    State(
        "seats, and more comes than is served",
        Server(load(8.0, 80), _sized(max_num_seqs=16), since=20, seconds=40).scrapes,
        "overloaded",
        "max_num_seqs",
    ),
    State(
        "KV, many prompts",
        Server(load(8.0, prompt=1200, output=200), _sized(num_gpu_blocks_override=900, max_model_len=8192)).scrapes,
        "held_back",
        "kv_blocks",
    ),
    State(
        "KV, preemptions",
        Server(load(6.0, 30, prompt=60, output=900), _sized(num_gpu_blocks_override=600, max_model_len=4096)).scrapes,
        "held_back",
        "kv_blocks",
        "preemption_storm",
    ),
    State(
        "KV, prompts of half the pool",
        Server(load(0.5, prompt=14_000, output=400), _sized(num_gpu_blocks_override=2050)).scrapes,
        "held_back",
        "kv_full_sequence",
    ),
    State(
        "token budget, long prompts",
        Server(load(2.2, prompt=6000, output=40), _sized(max_num_batched_tokens=2048)).scrapes,
        "held_back",
        "token_budget",
    ),
    State("LoRA slots", _deferred(lora=LORA), "held_back", "lora_slots"),
    State(
        "LoRA slots, replayed",
        Server(
            load(8.0, lora_name=lambda place: f"a{place % 6}"),
            _sized(enable_lora=True, max_loras=1),
            known={"max_loras": 1},
        ).scrapes,
        "held_back",
        "lora_slots",
    ),
    State("grammar", _deferred(), "held_back", "waiting_grammar"),
    State(
        "KV from elsewhere",
        _deferred(asked='vllm:external_prefix_cache_queries_total{{engine="0",model_name="m"}} {place}'),
        "held_back",
        "waiting_remote_kv",
    ),
    State("one hot replica", _alone(16, 9.0).scrapes, "held_back", "max_num_seqs", "hot_engine"),
    State("prefix hits", _prefixes(None, 8000).scrapes, "idle"),
    State("prefix hits lost: a date in front", _prefixes(19.0, 8000).scrapes, "idle", cause="cache_missed"),
    State("0 running, 5 waiting, KV 0 %", _still(0, 5, 0.0), "stuck", cause="stuck"),
    State("a step that does not end", _still(7, 2, 0.4), "stuck", cause="stuck"),
    State("blocks that are never freed", _hoarded().scrapes, "stuck", cause="stuck"),
    State(
        "asleep",
        _still(
            0,
            3,
            0.0,
            sleep=ASLEEP,
        ),
        "stuck",
        cause="stuck",
    ),
]
