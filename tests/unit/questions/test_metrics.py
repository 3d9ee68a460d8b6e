"""Metrics alone: the workload made of them is that of the run that was scraped, and what it was short of is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

import tokenyard as ty
from tokenyard.cli.main import main
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.questions.metrics import ServedHour, read_metrics, scraped
from tokenyard.workload.scrapes import read_scrapes

prometheus_client = pytest.importorskip("prometheus_client", reason="it is not installed (extra: server)")

from tokenyard.serve.metrics import MetricsObserver  # noqa: E402 - an extra

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_model_len=16384)


class Scraped(MetricsObserver):
    """What a scraper would have written of a replay, every few seconds of its clock."""

    def __init__(self, path: Path, every: float = 2.0) -> None:
        super().__init__(model_name="m", max_model_len=16384)
        self._path, self._every, self._next = path, every, 0.0
        path.write_bytes(b"")

    def step_started(self, ts: float, step: int, state: Any) -> None:
        while ts >= self._next:
            self.scrape()

    def scrape(self) -> None:
        with self._path.open("ab") as file:
            file.write(b"# scraped_at %.3f\n" % self._next + prometheus_client.generate_latest(self.registry))
        self._next += self._every


def served(path: Path, workload: ty.Workload, deployment: ty.Deployment = DEPLOYMENT) -> ty.RunResult:
    watching = Scraped(path)
    run = ty.run(workload, deployment, observer=watching, rows=False)
    watching.scrape()
    return run


def load(number: int, rate: float, mu: float = 5.0, longest: int = 12_000) -> ty.Workload:
    w = ty.WorkloadBuilder("load", seed=1)
    for at in w.poisson(rate=rate, n=number):
        w.request(at=at, prompt=min(int(w.lognormal(mu, 0.6)) + 1, longest), output=int(w.lognormal(4, 0.5)) + 1)
    return w.build()


def close(one: float, other: float, share: float) -> bool:
    return abs(one / other - 1) <= share


@pytest.mark.slow
def test_lengths_and_arrivals_are_those_of_the_run(tmp_path: Path) -> None:
    workload = load(120, 5.0)
    run = served(tmp_path / "m.prom", workload, DEPLOYMENT.with_(max_num_seqs=8))
    made, told = read_metrics(tmp_path / "m.prom")
    assert len(made) == len(workload) == told.requests == told.finished
    assert close(made.num_prompt_tokens, workload.num_prompt_tokens, 0.01)
    assert close(made.num_output_tokens, workload.num_output_tokens, 0.01)
    for count in range(20, 120, 20):
        assert abs(made.requests[count].arrival_time - workload.requests[count].arrival_time) < 4
    again = ty.run(made, DEPLOYMENT.with_(max_num_seqs=8), rows=False).report
    assert close(again.tpot_ms.mean or 0, run.report.tpot_ms.mean or 1, 0.05)
    assert close(again.e2e_ms.mean or 0, run.report.e2e_ms.mean or 1, 0.10)
    assert told.e2e_mean_s == pytest.approx((run.report.e2e_ms.mean or 0) / 1e3, rel=0.001)
    assert (made, told) != read_metrics(tmp_path / "m.prom", seed=1)
    assert all(each.measured is None for each in made)  # metrics measure no single request


@pytest.mark.slow
def test_lengths_are_as_different_as_they_were(tmp_path: Path) -> None:
    """Spread evenly over their buckets they would be more so: what waits behind long ones would wait too long."""
    w = ty.WorkloadBuilder("load", seed=4)
    for at in w.poisson(rate=10.0, n=300):
        w.request(at=at, prompt=int(w.lognormal(5, 0.6)) + 1, output=int(w.lognormal(4, 0.5)) + 1)
    workload = w.build()
    served(tmp_path / "m.prom", workload)
    made, _ = read_metrics(tmp_path / "m.prom")
    for lengths in (lambda each: each.max_tokens, lambda each: each.num_prompt_tokens):
        was, now = (stdev(map(lengths, each.requests)) for each in (workload, made))
        assert close(now, was, 0.12)


def test_arrivals_are_where_first_tokens_say(tmp_path: Path) -> None:
    """Twelve that come at the end of an interval of two seconds do not come in its middle."""
    w = ty.WorkloadBuilder("late", seed=0)
    w.request(at=0.1, prompt=50, output=400)
    for i in range(12):
        w.request(at=1.6 + 0.02 * i, prompt=50, output=400)
    served(tmp_path / "m.prom", w.build())
    made, _ = read_metrics(tmp_path / "m.prom")
    assert mean(each.arrival_time for each in made.requests) == pytest.approx(12 * 1.61 / 13, abs=0.15)


@pytest.mark.slow
def test_who_is_under_way_at_the_first_scrape_does_not_come_at_once(tmp_path: Path) -> None:
    """They came one after another before it: all at once they would wait for each other's prompts."""
    served(tmp_path / "all.prom", load(200, 8.0, mu=7.0, longest=4000))
    _, *scrapes = (tmp_path / "all.prom").read_bytes().split(b"# scraped_at ")
    (tmp_path / "m.prom").write_bytes(b"".join(b"# scraped_at " + each for each in scrapes[4:]))
    made, told = read_metrics(tmp_path / "m.prom")
    under_way = len(made) - (200 - sum(each.arrival_time < 8 for each in load(200, 8.0, mu=7.0, longest=4000)))
    assert under_way >= 5
    begun = [each.arrival_time for each in made.requests[:under_way]]
    assert begun[0] == 0.0
    assert len(set(begun)) == under_way
    assert begun[-1] < 2 * (told.e2e_mean_s or 0)


@pytest.mark.slow
def test_hits_come_again(tmp_path: Path) -> None:
    w = ty.WorkloadBuilder("agents", seed=2)
    for at in w.poisson(rate=1.0, n=24):
        session = w.session(at=at)
        for _ in range(4):
            session.turn(user=int(w.lognormal(4.5, 0.5)) + 1, output=40)
    served(tmp_path / "m.prom", w.build())
    made, told = read_metrics(tmp_path / "m.prom")
    again = ty.run(made, DEPLOYMENT, rows=False).report
    assert told.hit_rate is not None
    assert told.hit_rate > 0.3
    assert again.prefix_hit_rate.local == pytest.approx(told.hit_rate, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "workload", "settings"),
    [
        ("nothing", lambda: load(40, 1.0), {}),
        ("max_num_seqs", lambda: load(80, 8.0), {"max_num_seqs": 4}),
        (
            "kv_blocks",
            lambda: load(60, 8.0, mu=7.0, longest=4000),
            {"num_gpu_blocks_override": 600, "max_model_len": 8192},
        ),
        ("token_budget", lambda: load(60, 4.0, mu=8.7), {}),
    ],
)
def test_the_shortage_is_what_the_scheduler_recorded(
    tmp_path: Path, code: str, workload: Callable[[], ty.Workload], settings: dict[str, Any]
) -> None:
    run = served(tmp_path / "m.prom", workload(), DEPLOYMENT.with_(**settings))
    told = read_metrics(tmp_path / "m.prom")[1]
    recorded = run.report.recorded_reasons
    lost = max(recorded, key=lambda name: recorded[name].seconds, default="nothing")
    assert told.findings[0].code == code
    assert {"kv_full_sequence": "kv_blocks"}.get(lost, lost) == code or code == "nothing"


def answer_of(text: bytes) -> bytes:
    """The same scrapes as Prometheus answers a range query."""
    series: dict[str, dict[str, Any]] = {}
    moment = 0.0
    for line in text.decode().splitlines():
        if line.startswith("# scraped_at"):
            moment = float(line.split()[2])
        elif line.startswith("vllm:"):
            name, value = line.rsplit(" ", 1)
            labels = dict(prometheus_labels(name))
            series.setdefault(name, {"metric": labels, "values": []})["values"].append([moment, value])
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(series.values())}}).encode()


def prometheus_labels(name: str) -> list[tuple[str, str]]:
    bare, _, rest = name.partition("{")
    pairs = [part.split("=", 1) for part in rest.rstrip("}").split(",") if part]
    return [("__name__", bare), ("instance", "a:8000"), *((key, value.strip('"')) for key, value in pairs)]


def test_an_answer_of_prometheus_says_the_same(tmp_path: Path) -> None:
    served(tmp_path / "m.prom", load(30, 5.0))
    text = (tmp_path / "m.prom").read_bytes()
    (tmp_path / "m.json").write_bytes(answer_of(text))
    by_text, by_answer = (read_metrics(tmp_path / name)[1] for name in ("m.prom", "m.json"))
    assert by_answer.to_dict() | {"source": ""} == by_text.to_dict() | {"source": ""}


def test_counters_may_begin_again_and_engines_are_added() -> None:
    lines = []
    for moment, first, second in ((10, 5, 1), (20, 8, 2), (30, 2, 4)):
        lines += [
            f"# scraped_at {moment}",
            f'vllm:num_requests_running{{engine="0"}} {first}',
            f'vllm:num_requests_running{{engine="1"}} {second}',
            f'vllm:request_success_total{{engine="0",finished_reason="stop"}} {first}',
            f'vllm:request_success_total{{engine="1",finished_reason="stop"}} {second}',
        ]
    scrapes = read_scrapes("\n".join(lines).encode(), "m")
    assert scrapes.rise("vllm:request_success_total").tolist() == [4.0, 4.0]
    assert scrapes.num_engines == 2
    assert scrapes.gauge("vllm:num_requests_running").tolist() == [6.0, 10.0, 6.0]


@pytest.mark.slow
def test_acceptance_is_that_of_the_server(tmp_path: Path) -> None:
    watching = Scraped(tmp_path / "m.prom")
    observer = MetricsObserver(model_name="m", max_model_len=16384, num_speculative_tokens=2)
    watching.registry = observer.registry
    drafting = DEPLOYMENT.with_(num_speculative_tokens=2, acceptance_rates="0.8,0.5")
    run = ty.run(load(60, 4.0), drafting, observer=[observer, watching], rows=False)
    watching.scrape()
    rates = read_metrics(tmp_path / "m.prom")[1].acceptance_rates
    assert rates == pytest.approx([0.8, 0.5], abs=0.05)
    assert run.report.speculation is not None


def test_a_server_is_scraped_and_prometheus_asked(tmp_path: Path) -> None:
    served(tmp_path / "m.prom", load(30, 5.0))
    text = (tmp_path / "m.prom").read_bytes()
    single = iter(text.split(b"# scraped_at")[1:])
    moments = iter(range(1000))
    told = scraped(
        "http://127.0.0.1:8000/metrics",
        last=6,
        step=1,
        now=lambda: float(next(moments)),
        sleep=lambda _: None,
        fetch=lambda url: next(single).split(b"\n", 1)[1],
    )[1]
    assert told.scrapes >= 3
    asked: list[str] = []

    def answer(url: str) -> bytes:
        asked.append(url)
        return answer_of(text)

    assert scraped("http://127.0.0.1:9090", last=60, step=2, fetch=answer)[1].requests == 30
    assert asked[0].startswith("http://127.0.0.1:9090/api/v1/query_range?query=%7B__name__")
    assert asked[0].endswith("&step=2")
    scraped("http://127.0.0.1:9090", now=lambda: 3600.0, fetch=answer)
    assert asked[1].endswith("&start=0.0&end=3600.0&step=15.0"), "an hour where no range is given"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", WorkloadError),
        (b"vllm:num_requests_running 1\n", WorkloadError),
        (b"# scraped_at 1\nvllm:num_requests_running 1\n", WorkloadError),
        (b"# scraped_at 1\nvllm:x 1\n# scraped_at 2\nvllm:x nonsense\nvllm:x 2\n", WorkloadError),
        (b"{not json", WorkloadError),
        (b'{"status": "error", "error": "bad"}', WorkloadError),
        (b'# scraped_at 1\nvllm:x{model_name="a"} 1\nvllm:x{model_name="b"} 1\n', ConfigError),
    ],
)
def test_what_is_no_metrics_is_refused(tmp_path: Path, text: bytes, error: type[Exception]) -> None:
    (tmp_path / "m.prom").write_bytes(text)
    with pytest.raises(error):
        read_metrics(tmp_path / "m.prom")


def test_addresses_hold_no_passwords_and_answer() -> None:
    for url in ("ftp://a", "http://me:secret@a", "http://127.0.0.1:1"):
        with pytest.raises(ConfigError) as caught:
            scraped(url, last=10, step=1)
        assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_the_command_writes_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served(tmp_path / "m.prom", load(60, 8.0), DEPLOYMENT.with_(max_num_seqs=4))
    made = tmp_path / "made.jsonl"
    assert main(["import", "--prometheus", str(tmp_path / "m.prom"), "--output", str(made)]) == 0
    assert "never more: max_num_seqs" in capsys.readouterr().out.replace("\n", " ")
    assert len(ty.load_workload(str(made))) == 60
    assert main(["import", "--prometheus", str(tmp_path / "m.prom"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["code"] == "max_num_seqs"
    assert main(["import", "a.log", "--prometheus", str(tmp_path / "m.prom")]) == 2


def test_the_answer_is_an_answer(tmp_path: Path) -> None:
    served(tmp_path / "m.prom", load(20, 5.0))
    told: ServedHour = read_metrics(tmp_path / "m.prom")[1]
    assert [*told.as_table()["code"]] == [each.code for each in told.findings]
    assert told.findings[0].text in repr(told)


def scrape_of(moment: float, *, waiting: int, ended: int, asked: float, hits: float, drafts: int = 0) -> str:
    """What a server says at a moment: two seats, all of them taken, and counters so far."""
    lengths = [
        line
        for name in ("prompt", "generation")
        for line in (
            f'vllm:request_{name}_tokens_bucket{{le="10"}} {ended}',
            f'vllm:request_{name}_tokens_bucket{{le="+Inf"}} {ended}',
            f"vllm:request_{name}_tokens_sum {5 * ended}",
            f"vllm:request_{name}_tokens_count {ended}",
        )
    ]
    return "\n".join(
        [
            f"# scraped_at {moment}",
            "vllm:num_requests_running 2",
            f"vllm:num_requests_waiting {waiting}",
            "vllm:kv_cache_usage_perc 0.2",
            f'vllm:request_success_total{{finished_reason="stop"}} {ended}',
            f"vllm:prefix_cache_queries_total {asked}",
            f"vllm:prefix_cache_hits_total {hits}",
            f"vllm:spec_decode_num_drafts_total {drafts}",
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {drafts // 2}',
            *lengths,
        ]
    )


def hour_of(tmp_path: Path, number: int, waiting: int, each: int, drafts: int = 0) -> ServedHour:
    """``number`` scrapes, a request waiting at the first ``waiting``, ``each`` ended since the one before; prompts are
    cached to nine tenths in the first half, to one tenth in the second.
    """
    texts, hits = [], 0.0
    for i in range(number):
        hits += 0.0 if not i else each * (9 if i <= number // 2 else 1)
        texts.append(
            scrape_of(
                10.0 * i, waiting=int(i < waiting), ended=each * i, asked=10 * each * i, hits=hits, drafts=drafts * i
            )
        )
    (tmp_path / "m.prom").write_text("\n".join(texts) + "\n")
    return read_metrics(tmp_path / "m.prom")[1]


@pytest.mark.parametrize(
    ("number", "waiting", "code", "said"),
    [
        (9, 9, "too_few", "requests waited at 9 of 9 scrapes: too few to say what was short (10 are the least)"),
        (40, 4, "too_few", "requests waited at 4 of 40 scrapes: too few to say for what (5 are the least)"),
        (
            40,
            5,
            "max_num_seqs",
            "requests waited at 5 of 40 scrapes (12%), 1 on average, while KV stood at 20% and 2 ran",
        ),
        (40, 0, "nothing", "nothing was short: a request waited at 0 of 40 scrapes"),
    ],
)
def test_what_was_short_rests_on_enough_scrapes_and_says_on_how_many(
    tmp_path: Path, number: int, waiting: int, code: str, said: str
) -> None:
    finding = hour_of(tmp_path, number, waiting, each=1).findings[0]
    assert (finding.code, finding.observations) == (code, number)
    assert finding.text.startswith(said)


@pytest.mark.parametrize(("each", "is_told"), [(2, False), (3, True)])
def test_a_trend_of_hits_rests_on_thirty_requests_in_each_half(tmp_path: Path, each: int, is_told: bool) -> None:
    told = hour_of(tmp_path, 21, 0, each)
    found = {finding.code: finding for finding in told.findings}
    assert ("hits" in found) == is_told
    if is_told:
        said = "prefix hits fell from 90% in the first half (30 requests) to 10% in the second (30)"
        assert (found["hits"].text, found["hits"].observations) == (said, 60)


def test_the_share_of_drafts_that_is_accepted_rests_on_thirty(tmp_path: Path) -> None:
    few, enough = (hour_of(tmp_path, 11, 0, 2, drafts) for drafts in (2, 4))
    assert (few.acceptance_rates, few.num_drafts) == ([], 20)
    assert (enough.acceptance_rates, enough.num_drafts) == ([0.5], 40)
    assert "--acceptance-rates 0.5, of 40 drafts" in str(enough)
