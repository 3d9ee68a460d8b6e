"""What there is to look at: addresses that are scraped, files and folders of scrapes, logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tokenyard.deploy.texts.startup_log import is_startup_log
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.files import read_input
from tokenyard.questions.metrics import fetched, host_of, range_of
from tokenyard.workload.scrapes import MOST_BYTES, ScrapedText, Scrapes, has_scrapes, says_when, scrapes_of

WATCHED_S, EVERY_S = 10.0, 2.0
"""Seconds for which a server is scraped, and between two scrapes."""
_ASKED_S, _ASKED_EVERY_S = 600.0, 15.0
"""The same of what a Prometheus is asked for."""
_APART_S = 10.0
"""Seconds between two scrapes whose times nothing tells."""
_ALIKE_S = 0.2
"""Times of files that are nearer than this tell of copies."""


class Evidence(NamedTuple):
    """What was found."""

    scrapes: Scrapes
    startup_log: Path | None
    """A file that says how the server was started."""
    assumed: list[str]


class Watching(NamedTuple):
    """How addresses are asked."""

    last: float | None = None
    step: float | None = None
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    fetch: Callable[[str], bytes] = fetched


def gathered(sources: Sequence[str], model_name: str | None, watching: Watching) -> Evidence:
    """Read, or scrape, all of them. Raises TokenyardError for what says nothing of a server."""
    addresses = [each for each in sources if "://" in each]
    files = [(path, replica) for each in sources if "://" not in each for path, replica in _files_of(Path(each))]
    if not sources:
        raise ConfigError("sources", "", "name the address of a server, as http://localhost:8000, or files of scrapes")
    texts: list[ScrapedText] = []
    startup_log = None
    assumed: list[str] = []
    for path, replica in files:
        data = read_input(path, MOST_BYTES)
        if not has_scrapes(data):
            if not is_startup_log(data.decode("utf-8", "replace")):
                fix = "holds no metrics of vLLM's (vllm:...), none of its lines of `Running: ... Waiting: ...`"
                raise WorkloadError(path.name, 0, f"{fix} and no log of a start: tokenyard run reads logs of requests")
            startup_log = path
            continue
        if is_startup_log(data.decode("utf-8", "replace")):
            startup_log = path
        texts.append(ScrapedText(path.name, data, path.stat().st_mtime, replica))
    texts, said = _with_times(texts)
    assumed += said
    texts += _scraped(addresses, watching)
    if not texts:
        raise ConfigError("sources", sources[0], "is a log of a start alone: name scrapes, or an address, beside it")
    name = host_of(addresses[0], "sources") if addresses else Path(sources[0]).name
    return Evidence(scrapes_of(texts, name, model_name, is_one_enough=True), startup_log, assumed)


def _files_of(path: Path) -> Iterator[tuple[Path, str]]:
    """A file; or the files of a folder, those of a folder in it being of a replica each."""
    if not path.is_dir():
        yield path, ""
        return
    inside = sorted(each for each in path.iterdir() if not each.name.startswith("."))
    if not inside:
        raise ConfigError("sources", str(path), "is an empty folder: name one that holds scrapes")
    for each in inside:
        if each.is_file():
            yield each, ""
        else:
            yield from ((file, each.name) for file in sorted(each.iterdir()) if file.is_file())


def _with_times(texts: Sequence[ScrapedText]) -> tuple[list[ScrapedText], list[str]]:
    """The texts with the times of their files where these tell them apart; else so many seconds apart."""
    silent = [each for each in texts if not says_when(each.data)]
    if len(silent) < 2:
        return list(texts), []
    replicas = list(dict.fromkeys(each.replica for each in silent))
    timed: list[ScrapedText] = [each for each in texts if each not in silent]
    is_assumed = False
    for replica in replicas:
        mine = [each for each in silent if each.replica == replica]
        times = [each.at or 0.0 for each in mine]
        if any(late - early < _ALIKE_S for early, late in pairwise(times)):
            is_assumed = True
            mine = [each._replace(at=times[0] + _APART_S * place) for place, each in enumerate(mine)]
        timed += mine
    said = f"scrapes taken to be {_APART_S:g} s apart, in the order given: a line `# scraped_at UNIX_SECONDS` says when"
    return timed, [said] if is_assumed else []


def _scraped(addresses: Sequence[str], watching: Watching) -> list[ScrapedText]:
    """Scrapes of servers, one after another until the time is over; of a Prometheus, what it has kept."""
    texts: list[ScrapedText] = []
    servers: list[tuple[str, str]] = []
    for url in addresses:
        host = host_of(url, "sources")
        address = _metrics_address(url, watching)
        if address is None:
            last = _ASKED_S if watching.last is None else watching.last
            step = _ASKED_EVERY_S if watching.step is None else watching.step
            texts.append(ScrapedText(host, range_of(url, last, step, watching.now, watching.fetch)))
        else:
            servers.append((address, urlsplit(url).netloc if len(addresses) > 1 else ""))
    if not servers:
        return texts
    last = WATCHED_S if watching.last is None else watching.last
    step = min(EVERY_S, last) if watching.step is None else watching.step
    if not 0 < step <= last:
        raise ConfigError("step", step, "must be above 0 and no longer than the time (§last)")
    begin = watching.now()
    while True:
        moment = watching.now()
        texts += [ScrapedText(address, watching.fetch(address), moment, replica) for address, replica in servers]
        if moment - begin >= last - 1e-3:
            return texts
        watching.sleep(max(min(step, begin + last - moment) - (watching.now() - moment), 0.0))


def _metrics_address(url: str, watching: Watching) -> str | None:
    """Where a server's metrics are; None: it is a Prometheus."""
    path = urlsplit(url).path
    if path.endswith("/metrics"):
        return url
    if path.strip("/"):
        return None
    address = f"{url.rstrip('/')}/metrics"
    try:
        answer = watching.fetch(address)
    except ConfigError as error:
        if "answers" not in str(error):  # nothing is there
            raise
        return None
    return address if b"vllm:" in answer else None
