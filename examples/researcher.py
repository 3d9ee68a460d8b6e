"""From an idea to tables: a deployment, a workload of one's own, what happened row by row, and what would be cheaper.

python examples/researcher.py [SESSIONS]
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import tokenyard as ty

sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 200
traces = Path(mkdtemp(prefix="researcher-"))

d = ty.Deployment("vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 32768", gpu="h100")
print(d)

w = ty.WorkloadBuilder("mine", seed=0)
system = w.text(1024)
for t in w.poisson(rate=2.0, n=sessions):
    s = w.session(at=t, prefix=system)
    for k in range(4):
        s.turn(user=w.lognormal(5.5, 1), output=w.lognormal(5, 0.7), think=w.exponential(5), meta={"k": k})

# What happened: tables of requests, steps and waits, which pandas, polars and Arrow take as they are.
run = d.replay(w.build(), policy="fcfs", warmup=5, until=600, trace=traces / "monday")
print(repr(run))
last_turns = run.requests["ttft_ms"][run.requests["k"] == 3]
print(f"TTFT of last turns: {last_turns.mean():.0f} ms; tokens: {run.token_gaps().mean():.1f} ms apart")
print(f"{len(run.steps):,} steps, {run.waits['seconds'].sum():.2f} s waited; why one did:")
print(run.why("s15_t0"))

# What would be cheaper, in two processes.
plan = d.plan(
    w.build(),
    slo={"ttft_p90": "1s", "tpot_p90": "60ms"},
    minimize="cost",
    price={"h100": 2.5},
    space={"tensor_parallel_size": [1, 2]},
    jobs=2,
    largest_load=False,
)
print(repr(plan), plan.serve)

# What fewer blocks would have done to the run that was recorded.
told = ty.Recording(traces / "monday").whatif({"kv": {"num_gpu_blocks_override": 4_000}})
for row in told.as_table():
    if row["figure"] in ("ttft_ms.mean", "preemptions"):
        print(row)
