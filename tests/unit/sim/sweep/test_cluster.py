"""Tasks on a cluster: which workers may do them, what is heard of them, and who is asked how often."""

from __future__ import annotations

import logging
import socket
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.support.toy_ray import Machine, RayError, ToyRay

import tokenyard as ty
from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.questions.sweeping import cluster, worker
from tokenyard.questions.sweeping.cluster import Cluster


@pytest.fixture(autouse=True)
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is something at the address."""
    monkeypatch.setattr(cluster, "create_connection", lambda address, seconds: nullcontext())


def squared(number: int) -> int:
    return number * number


def told(number: int) -> int:
    logging.getLogger("tokenyard.trace").warning("trace: writing stopped at %d", number)
    warnings.warn(f"task {number}", UserWarning, stacklevel=1)
    return number


def dies(number: int) -> int:
    raise RayError("the worker died")


def done(
    ray: ToyRay, tasks: range, monkeypatch: pytest.MonkeyPatch, job: Any = squared, **options: Any
) -> dict[int, int]:
    monkeypatch.setitem(sys.modules, "ray", ray)
    with Cluster(job, "head:6379", **options) as here:
        return dict(here.each(tasks))


def refusal(ray: ToyRay, monkeypatch: pytest.MonkeyPatch, job: Any = squared, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        done(ray, range(3), monkeypatch, job, **options)
    assert (refused.value.field, refused.value.value) == ("ray", "head:6379")
    return refused.value


def test_each_task_has_its_result_whichever_is_done_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = ToyRay(Machine("10.0.0.1"), Machine("10.0.0.2"))
    assert done(ray, range(40), monkeypatch) == {number: number * number for number in range(40)}
    assert ray.inits == [{"log_to_driver": False, "address": "head:6379"}]
    assert ray.is_shut_down


@pytest.mark.parametrize("what", ["tokenyard", "numpy", "python", "settings"])
def test_a_worker_with_something_else_is_refused_by_its_address(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit has the same version: a checksum says which text is installed."""
    ray = ToyRay(Machine("10.0.0.1"), Machine("10.0.0.2", differs={what: "another"}))
    fix = refusal(ray, monkeypatch).fix
    assert f"the worker at 10.0.0.2 would replay with something else than this process: {what} another" in fix
    assert f"(here {worker.identity()[what]})" in fix
    assert ray.is_shut_down


def test_what_a_worker_warns_of_is_heard_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert done(ToyRay(Machine("10.0.0.9")), range(1), monkeypatch, told) == {0: 0}
    heard = [each.getMessage() for each in caplog.records if each.name == "tokenyard.cluster"]
    assert heard == ["10.0.0.9: trace: writing stopped at 0", "10.0.0.9: task 0"]


def test_a_machine_with_little_room_for_traces_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ray = ToyRay(Machine("10.0.0.1"), Machine("10.0.0.2", bytes_left=7_000_000))
    done(ray, range(8), monkeypatch, traces=tmp_path / "traces")
    assert [each.getMessage() for each in caplog.records] == ["10.0.0.2: 7.0 MB are left for traces"]
    assert list((tmp_path / "traces").iterdir()) == [], "the mark is gone"


def test_a_machine_that_does_not_see_the_folder_of_traces_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = ToyRay(Machine("10.0.0.1"), Machine("10.0.0.2", sees_folders=False))
    fix = refusal(ray, monkeypatch, traces=tmp_path).fix
    assert f"the worker at 10.0.0.2 does not see {tmp_path}, where traces are kept" in fix
    assert list(tmp_path.iterdir()) == []


def test_machines_that_join_later_get_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = ToyRay(Machine("10.0.0.1", cpus=1))
    ray.joins = {5: Machine("10.0.0.2", cpus=7)}
    done(ray, range(100), monkeypatch)
    assert ray.sent_ahead[:5] == [4] * 5
    assert max(ray.sent_ahead) == 32


def _refused_at_the_door() -> Exception:
    """As Ray 2.60 says it: the reason is what its error comes from."""
    error = ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")
    error.__cause__ = RuntimeError("Failed to connect to GCS: ... RAY_AUTH_TOKEN where token authentication is enabled")
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionError("Could not connect to head:6379"), "there is no such cluster: Could not connect"),
        (
            RuntimeError("Version mismatch: The cluster has\n    Ray: 2.50.0\n    Python: 3.12.1"),
            "another Ray",
        ),
        (RuntimeError("InvalidAuthToken: authentication token is missing"), "set RAY_AUTH_MODE=token"),
        (_refused_at_the_door(), "set RAY_AUTH_MODE=token"),
    ],
    ids=["nowhere", "version", "token", "token of Ray 2.60"],
)
def test_why_a_cluster_cannot_be_used_is_said(error: Exception, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fix = refusal(ToyRay(Machine("10.0.0.1"), refuses=error), monkeypatch).fix
    assert says.lower() in fix.lower()
    assert str(error).split("\n")[0][:20] in fix


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_at_which_nothing_listens_is_told_at_once(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would ask it again for minutes."""
    monkeypatch.setattr(cluster, "create_connection", socket.create_connection)
    ray = ToyRay(Machine("10.0.0.1"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = form.format(nobody.getsockname()[1])
        with Cluster(squared, address) as here, pytest.raises(ConfigError, match="no such cluster"):
            list(here.each([1]))
    assert not ray.inits


def test_a_worker_that_dies_again_and_again_ends_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "could not be measured: the worker died" in refusal(ToyRay(Machine("10.0.0.1")), monkeypatch, dies).fix


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with Cluster(squared, "local") as here, pytest.raises(MissingExtraError, match="ray"):
        list(here.each([1]))


def test_the_identity_is_that_of_every_text_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "tokenyard"
    package.mkdir()
    (package / "__init__.py").write_text("")
    table = package / "table.toml"
    found = []
    for text in ("a = 1", "a = 2", "a = 1"):
        table.write_text(text)
        monkeypatch.setattr(
            worker, "find_spec", lambda name: type("Spec", (), {"origin": str(package / "__init__.py")})
        )
        found.append(worker.identity_now()["tokenyard"])
    assert found[0] == found[2] != found[1]


def test_settings_that_decide_are_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENYARD_INTERPRETED", "1")
    monkeypatch.setenv("TOKENYARD_NOT_CHECKED", "/anywhere")
    monkeypatch.setenv("TOKENYARD_DECIDES_AS", "0.22")
    assert worker.identity_now()["settings"] == "TOKENYARD_DECIDES_AS=0.22"


def test_a_plan_on_a_cluster_is_that_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=900, max_model_len=4096)
    asked: dict[str, Any] = {"space": {"max_num_seqs": [1, 2, 4, 8]}, "largest_load": False, "num_prompts": 12}
    alone = server.plan("random", jobs=1, **asked)
    ray = ToyRay(Machine("10.0.0.1"), Machine("10.0.0.2", cpus=2))
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert server.plan("random", ray="head:6379", **asked) == alone
    assert ray.sent_ahead[0] == 4, "all variants at once"
    assert ray.is_shut_down


def test_a_sweep_on_a_cluster_keeps_its_traces_where_every_machine_sees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", ToyRay(Machine("10.0.0.1")))
    server = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=900, max_model_len=4096)
    asked: dict[str, Any] = {"space": {"max_num_seqs": [1, 2]}, "num_prompts": 6, "output": "swept", "traces": True}
    assert len(server.sweep("random", ray="head:6379", **asked).rows) == 2
    traces = tmp_path / "swept" / "traces"
    assert sorted(each.is_dir() for each in traces.iterdir()) == [True, True]


def test_a_cluster_of_this_machine_that_does_not_start_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = ToyRay(refuses=RuntimeError("the node timed out"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    with Cluster(squared, "local") as here, pytest.raises(ConfigError, match="none could be started") as refused:
        list(here.each([1]))
    assert "the node timed out" in refused.value.fix
    assert ray.inits == [{"address": "local", "log_to_driver": False, "include_dashboard": False}], "and joins no other"


def test_nothing_that_this_process_knows_travels_with_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent by value: an identity kept among its names would be the sender's."""
    before = {name: repr(value) for name, value in vars(worker).items() if name != "__builtins__"}
    done(ToyRay(Machine("10.0.0.1")), range(3), monkeypatch)
    worker.identity()
    assert {name: repr(value) for name, value in vars(worker).items() if name != "__builtins__"} == before
