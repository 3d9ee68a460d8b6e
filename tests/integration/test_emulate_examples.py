"""The manifests of examples/ that start emulated servers: they are whole, and what they start can be started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tokenyard.cli.support.flags.serving import EmulateCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.recorded_surface import surface_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def started(words: list[str]) -> EmulateCommand:
    """The command that a container's words give."""
    command = parse([str(word) for word in words])
    assert isinstance(command, EmulateCommand)
    Deployment(command.serve, gpu=command.gpu).resolve()
    return command


def test_the_manifest_scales_what_it_starts_by_a_metric_that_there_is() -> None:
    parts: dict[str, Any] = {
        each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "emulate_kubernetes.yaml").read_text())
    }
    pod = parts["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert started(container["args"]).host == "0.0.0.0", "a pod is reached from outside"
    scaler = parts["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == parts["Deployment"]["metadata"]["name"]
    names = {each.name for each in surface_of("0.33").metrics}
    assert {each["pods"]["metric"]["name"] for each in scaler["metrics"]} <= names
    labels = pod["metadata"]["labels"]
    assert parts["Service"]["spec"]["selector"] == labels == parts["Deployment"]["spec"]["selector"]["matchLabels"]


def test_the_compose_file_starts_servers() -> None:
    services = yaml.safe_load((EXAMPLES / "emulate_compose.yaml").read_text())["services"]
    for name in ("vllm-a", "vllm-b"):
        started(services[name]["command"])
        assert services[name]["ports"][0].startswith("127.0.0.1:"), "compose listens to this machine alone"
