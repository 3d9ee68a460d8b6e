"""A deployment from its command line: what it comes to, what traffic does on it, and what would be better.

python examples/deployment.py
"""

from __future__ import annotations

from tokenyard import Deployment, run

__all__ = ["main"]


def main() -> None:
    """Resolve, change, replay, plan; half a minute."""
    deployment = Deployment("vllm serve Qwen/Qwen3-8B --max-model-len 16384 --max-num-seqs 16", gpu="l40s")
    print(deployment)

    # A value: changed copies, as if the setting had been given.
    fp8 = deployment.with_(kv_cache_dtype="fp8")
    for name, each in (("as it is", deployment), ("KV in fp8", fp8)):
        resolved = each.resolve()
        print(f"{name}: {resolved.plan.num_tokens:,} tokens of KV, {resolved.scheduler.max_num_seqs} requests at once")

    # The same traffic on both.
    for name, each in (("as it is", deployment), ("KV in fp8", fp8)):
        report = run("chat", each, limit=20, rate_scale=4).report
        print(f"{name}: TTFT {report.ttft_ms.mean:,.0f} ms, TPOT {report.tpot_ms.mean:,.1f} ms on average")

    # Which setting holds the bounds? What its largest load is takes minutes: leave out ``largest_load``.
    space = {"max_num_seqs": [16, 64], "kv_cache_dtype": ["auto", "fp8"]}
    plan = deployment.plan("chat", limit=20, space=space, slo={"ttft_p90": "1s"}, largest_load=False)
    print(f"\nrecommended: {plan.serve}")


if __name__ == "__main__":
    main()
