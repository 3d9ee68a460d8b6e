"""Servers that ``emulate_*.py`` ask: an emulated one in a thread, others in processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import uvicorn

from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import Emulation, emulate
from tokenyard.serve.emulate.listening import server_config, spare_collector
from tokenyard.serve.emulate.live import WallClock
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app
from tokenyard.web.serve import bound

__all__ = ["ROOT", "free_port", "running", "served", "tiny_model", "until_ready"]

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def served(
    deployment: Deployment, speed: float = 1.0, *, seen: StepObserver | None = None, wall: WallClock | None = None
) -> Iterator[tuple[Emulation, int]]:
    """A server in a thread of this process, and its port. ``wall`` is the clock that it keeps to, else ``speed``."""
    observers = [] if seen is None else [seen]
    with closing(emulate(deployment, EmulateSettings(speed=speed), observers=observers, wall=wall)) as emulation:
        app = make_app(emulation, emulation.fronts[0], deployment, emulation.faults)
        listener = bound("127.0.0.1", 0)
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        spare_collector()
        yield emulation, listener.getsockname()[1]
        server.should_exit = True
        thread.join()


@contextmanager
def running(command: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | environment)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()


def until_ready(
    url: str,
    logs: Sequence[Path],
    seconds: float,
    processes: Sequence[subprocess.Popen[bytes]] = (),
    is_ready: Callable[[httpx.Response], bool] = lambda answer: answer.status_code == 200,
) -> None:
    """Wait until an answer says that the server is ready; where it ends or takes too long, tell what its logs say."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and all(each.poll() is None for each in processes):
        try:
            if is_ready(httpx.get(url, timeout=10)):
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"{url} is not ready:\n" + "\n".join(each.read_text(errors="replace")[-3000:] for each in logs))


def free_port() -> int:
    """Return a port that is free."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def tiny_model(environment: Path, folder: Path) -> Path:
    """A tiny checkpoint with a tokenizer and a chat template, made in vLLM's environment."""
    code = f"""
import sys; sys.path.insert(0, {str(ROOT / "src")!r})
from pathlib import Path
from tokenyard.serve.served_model import make_demo_model
make_demo_model(Path({str(folder)!r}), width=128, max_model_len=4096)
"""
    subprocess.run([environment / "bin" / "python", "-c", code], check=True)
    return folder
