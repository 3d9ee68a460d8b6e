"""The application of a deployment file: ``import_path: tokenyard.server.replicas.application:app``."""

from __future__ import annotations

import os
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig

from tokenyard.server.replicas.front import Front
from tokenyard.server.replicas.ray_router import ReplicaRouter
from tokenyard.server.replicas.replica import Replica
from tokenyard.server.replicas.settings import read_settings

__all__ = ["app"]

_MOST_ONGOING = 100_000
"""Requests that Ray lets a replica have: it says itself when its queue is full."""


def app(args: dict[str, Any]) -> Any:
    """The deployments: replicas of the engine, and a front before them. Raises ConfigError.

    API keys come from the environment, VLLM_API_KEY, with commas between them: files are read by many.
    """
    settings = read_settings(args)
    keys = [key for key in os.environ.get("VLLM_API_KEY", "").split(",") if key]
    replicas = serve.deployment(
        name="Replica",
        num_replicas=settings.num_replicas,
        max_ongoing_requests=_MOST_ONGOING,
        ray_actor_options={"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        request_router_config=RequestRouterConfig(
            request_router_class=ReplicaRouter,
            request_router_kwargs={
                "router": settings.router,
                "most_ahead": settings.most_ahead,
                "most_remembered": settings.most_remembered,
            },
        ),
        health_check_period_s=settings.health_check_period_s,
    )(Replica)
    front = serve.deployment(name="Front", max_ongoing_requests=_MOST_ONGOING, ray_actor_options={"num_cpus": 0})(Front)
    return front.bind(replicas.bind(settings), settings.front.max_body_bytes, keys)
