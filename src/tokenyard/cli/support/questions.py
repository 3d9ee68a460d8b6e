"""The questions that people come with. Each has a page in ``docs/questions``, which runs its example."""

from __future__ import annotations

import msgspec

from tokenyard.deploy.vllm_serve.defaults import DEFAULT_VERSION, KNOWN_VERSIONS


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question, and the command that answers it."""

    text: str
    page: str
    """The document, in ``docs/questions``."""
    command: str
    """The command, with LOG for a log of the user's and dots for what starts the server."""
    example: str | None
    """The same on traffic that is built in; None: it needs a server."""
    sure: str
    """How far the answer can be trusted."""


_VERSIONS = f"--from {KNOWN_VERSIONS[0]} --to {DEFAULT_VERSION}"
_SERVE = '--serve "vllm serve ..." --gpu h100'
_CHAT = "random --request-rate 8 --num-prompts 600 --input-len 800 --output-len 200 --gpu l40s"
_AGENTS = "agentic --limit 24 --gpu l40s --max-model-len 65536 --num-gpu-blocks-override 5000"

QUESTIONS = (
    Question(
        text="Why is it slow?",
        page="slow.md",
        command=f"tokenyard run LOG {_SERVE}",
        example=f"tokenyard run {_CHAT} --max-num-seqs 32",
        sure="The reason is exact: it is the check of vLLM's scheduler that refused. The report's last"
        " line has the range of the times.",
    ),
    Question(
        text="How many GPUs do I need?",
        page="gpus.md",
        command=f"tokenyard plan LOG {_SERVE} --set replicas=1..4 max_num_seqs=64,256"
        " --slo ttft_p95=1s --minimize gpus",
        example="tokenyard plan random --request-rate 12 --num-prompts 200 --input-len 500 --output-len 60 --gpu l4"
        " --max-model-len 8192 --set replicas=1..3 --slo ttft_p95=1s --minimize gpus --no-largest-load",
        sure="The first line says holds, probably holds, or misses. A bound within the range of the step times is only"
        " probable: leave room, or measure one GPU and give its log with --calibrate.",
    ),
    Question(
        text="Would an FP8 KV cache help?",
        page="fp8.md",
        command=f"tokenyard compare LOG {_SERVE} --set kv_cache_dtype=fp8",
        example="tokenyard compare random --request-rate 3 --num-prompts 60 --input-len 3000 --output-len 200 --gpu l4"
        " --max-model-len 8192 --set kv_cache_dtype=fp8",
        sure="The room is exact, and times have a range. What FP8 does to answers is not modelled: measure it.",
    ),
    Question(
        text="Does prefix caching work, and why not?",
        page="caching.md",
        command=f"tokenyard run LOG {_SERVE} --trace trace && tokenyard why trace --prefix",
        example=f"tokenyard run {_AGENTS} --advice none --trace trace",
        sure="Hits and evictions are exact where it is known which prompts begin alike: in a trace, or a log with texts"
        " or hash_ids. A log of lengths alone has no hits.",
    ),
    Question(
        text="What if I change max_num_seqs?",
        page="seqs.md",
        command=f"tokenyard compare LOG {_SERVE} --set max_num_seqs=64,128,256",
        example=f"tokenyard compare {_CHAT} --max-num-seqs 32 --set max_num_seqs=64,128",
        sure="The order of variants is surer than their times: all are replayed with the same step times. One seed may"
        " be chance; --seeds 5 gives intervals.",
    ),
    Question(
        text="Which GPU is the cheapest for it?",
        page="cheapest.md",
        command='tokenyard plan LOG --serve "vllm serve ..." --gpu l4,l40s,h100 --set replicas=1..4 max_num_seqs=64,256'
        " --slo ttft_p95=1s --minimize cost",
        example="tokenyard plan random --request-rate 3 --num-prompts 200 --input-len 500 --output-len 60"
        " --max-model-len 8192 --gpu l4,l40s,h100 --set replicas=1,2 --slo ttft_p95=1s --minimize cost"
        " --no-largest-load",
        sure="Prices are one provider's list of one day: give yours with --price h100=2.5. Step times of GPUs that were"
        " never measured have a wide range, and the first line then says probably.",
    ),
    Question(
        text="May I upgrade vLLM?",
        page="upgrade.md",
        command=f"tokenyard upgrade LOG {_SERVE} {_VERSIONS}",
        example=f"tokenyard upgrade chat --limit 8 --rate-scale 10 --gpu l4 --max-model-len 8192 {_VERSIONS}",
        sure="Decisions, defaults and memory are compared with recordings of both versions. Faster kernels, and bugs of"
        " a version, are not seen: both are replayed with the same step times.",
    ),
    Question(
        text="My clients are agents that call tools: what holds them back?",
        page="agents.md",
        command=f"tokenyard agents LOG {_SERVE}",
        example=f"tokenyard compare {_AGENTS} --policies fcfs,continuum-ttl",
        sure="Turns and shared history are replayed exactly. One seed may be chance; --seeds 5 gives intervals. Tools"
        " take the times of the log.",
    ),
    Question(
        text="Interactive users and batch jobs share a server: who suffers?",
        page="tenants.md",
        command=f"tokenyard run LOG {_SERVE} --by tier --slo interactive:ttft_p95=1s",
        example="tokenyard run chat --limit 30 --rate-scale 20 --gpu l4 --max-model-len 8192 --max-num-seqs 8"
        " --advice none --by prompt_tokens",
        sure="Who waits for whom is exact. Whether a bound holds depends on step times: leave room beside it.",
    ),
    Question(
        text="How do I record and watch my server?",
        page="record.md",
        command="SCHED_TRACE_PATH=trace vllm serve ... --scheduler-cls tokenyard.vllm.TracingScheduler",
        example=None,
        sure="Nothing is predicted: these are the decisions and times of the server itself.",
    ),
)
"""In the order of the menu, of the README and of the documents."""
