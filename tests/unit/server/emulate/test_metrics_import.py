"""What is made of an emulated server's metrics serves as the log of the same run does: within 5 %."""

from __future__ import annotations

import asyncio
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import tokenyard as ty
from tokenyard.questions.metrics import read_metrics

pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

import httpx
from tests.unit.server.emulate.emulated import LINE

from tokenyard.serve.emulate.host import emulate
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app

DEPLOYMENT = ty.Deployment(LINE, gpu="h100")
SPEED = 4.0
EVERY = 0.5
"""Emulated seconds between two scrapes."""
WITHIN = 0.05
REQUESTS = 240


class Log(ty.StepObserver):
    """What a log of the server says: a line for each request that has ended."""

    reads_tokens = False

    def __init__(self) -> None:
        self.lines: list[tuple[float, int, int]] = []

    def request_finished(self, ts: float, request: ty.Request) -> None:
        self.lines.append((request.arrival_time, request.num_prompt_tokens, request.num_output_tokens))

    def workload(self) -> ty.Workload:
        w = ty.WorkloadBuilder("log", seed=0)
        start = min(self.lines)[0]
        for at, prompt, output in sorted(self.lines):
            w.request(at=at - start, prompt=prompt, output=output)
        return w.build()


async def serve(number: int, log: Log) -> bytes:
    """Clients come as a Poisson process and are answered; all scrapes meanwhile.

    Moments are those of the emulated clock: on a busy machine it is behind the wall, and no figure changes.
    """
    w = ty.WorkloadBuilder("clients", seed=3)
    lengths = [
        (min(int(w.lognormal(5, 0.7)) + 1, 900), min(int(w.lognormal(5.6, 0.5)) + 1, 900)) for _ in range(number)
    ]
    scrapes: list[bytes] = []
    with closing(emulate(DEPLOYMENT, EmulateSettings(speed=SPEED), observers=[log])) as emulation:
        (front,) = emulation.fronts
        app = make_app(emulation, front, DEPLOYMENT, emulation.faults)
        async with (
            front.llm,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1", timeout=120
            ) as client,
        ):

            async def scrape() -> None:
                answer = await client.get("/metrics")
                scrapes.append(b"# scraped_at %.3f\n" % emulation.engines.clock.now() + answer.content)

            async def scrape_always() -> None:
                while True:
                    await scrape()
                    await asyncio.sleep(EVERY / SPEED)

            async def ask(place: int, at: float) -> None:
                await asyncio.sleep(at / SPEED)
                prompt, output = lengths[place]
                ids = [place, *range(prompt - 1)]  # no two begin alike
                asked = {"model": "toy", "prompt": ids, "max_tokens": output, "ignore_eos": True}
                answer = await client.post("/v1/completions", json=asked)
                assert answer.status_code == 200, answer.text

            scraping = asyncio.create_task(scrape_always())
            await asyncio.gather(*(ask(place, at) for place, at in enumerate(w.poisson(rate=24, n=number))))
            scraping.cancel()
            await scrape()
    return b"".join(scrapes)


@pytest.mark.slow
def test_the_workload_of_the_metrics_is_served_as_that_of_the_log(tmp_path: Path) -> None:
    log = Log()
    scrapes = asyncio.run(serve(REQUESTS, log))
    moments = [float(line.split()[-1]) for line in scrapes.splitlines() if line.startswith(b"# scraped_at")]
    if max(late - early for early, late in pairwise(moments)) > 4 * EVERY:
        pytest.skip("the machine is too busy to scrape in time")
    (tmp_path / "hour.prom").write_bytes(scrapes)
    of_metrics, told = read_metrics(tmp_path / "hour.prom")
    of_log = log.workload()
    assert len(of_metrics) == len(of_log) == told.requests == REQUESTS
    assert of_metrics.num_prompt_tokens == pytest.approx(of_log.num_prompt_tokens, rel=WITHIN)
    assert of_metrics.num_output_tokens == pytest.approx(of_log.num_output_tokens, rel=WITHIN)
    by_metrics, by_log = (ty.run(each, DEPLOYMENT, rows=False).report for each in (of_metrics, of_log))
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert getattr(by_metrics, name).mean == pytest.approx(getattr(by_log, name).mean, rel=WITHIN), name
    reasons = by_log.recorded_reasons
    assert told.findings[0].code == max(reasons, key=lambda reason: reasons[reason].seconds) == "max_num_seqs"
