"""Keys, tokens and passwords are planted wherever people have them, and looked for in everything that comes out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from tests.integration.command import Outcome, call, environment
from tests.unit.server.web_client import client_of

from tokenyard import Deployment, study
from tokenyard.cli.support.flags import COMMANDS

PLANTED = "PLANTED"
"""Part of every secret."""
MODEL = "meta-llama/Llama-3.2-1B-Instruct"
SMALL = ("--gpu", "l4", "--max-model-len", "8192", "--limit", "4", "--ignore-unmodelled")
SHORT = ("random", "--num-prompts", "4", "--input-len", "40", "--output-len", "8")
"""A workload of a few steps: what is looked for is in any trace's first record."""
EXTRA = json.dumps(
    {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": 1 << 30,
            "api_key": f"{PLANTED}-in-json",
            "remote": {"redis-password": f"{PLANTED}-deeper"},
        },
    }
)
OTHER = json.dumps(
    {
        "api_key": f"{PLANTED}-1",
        "sk": f"{PLANTED}-3",
        "license": [f"{PLANTED}-4"],
        "remote": [{"redis-password": f"{PLANTED}-2", "url": f"a://{PLANTED}:{PLANTED}@b"}],
    }
)


def _nested(value: object, levels: int = 3) -> str:
    text = json.dumps(value)
    for _ in range(levels):
        text = json.dumps({"inner": text})
    return text


KUBERNETES = f"""
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - image: vllm/vllm-openai:v0.22.1
        args: [{MODEL}, "--api-key=$(KEY)", --hf-token, {PLANTED}-word]
        env:
        - {{name: KEY, value: {PLANTED}-resolved}}
        - {{name: VLLM_S3_SECRET, value: {PLANTED}-of-vllm}}
        - {{name: DATABASE, value: "postgres://me:{PLANTED}-url@db/x"}}
"""
COMPOSE = f"""
services:
  llm:
    image: vllm/vllm-openai:latest
    command: --model {MODEL} --api-key {PLANTED}-command
    environment:
      HF_TOKEN: {PLANTED}-mapping
      VLLM_API_KEY: {PLANTED}-key
"""
VALUES = f"""
servingEngineSpec:
  vllmApiKey: {PLANTED}-chart
  modelSpec:
  - name: llama
    repository: vllm/vllm-openai
    tag: v0.22.1
    modelURL: {MODEL}
    hf_token: {PLANTED}-values
    env: [{{name: HF_TOKEN, value: {PLANTED}-env}}]
    vllmConfig: {{enablePrefixCaching: true, extraArgs: ["--api-key", "{PLANTED}-extra"]}}
"""
UNIT = f"""
[Service]
Environment=HF_TOKEN={PLANTED}-unit "VLLM_MY_TOKEN={PLANTED}-quoted"
ExecStart=/usr/bin/vllm serve {MODEL} \\
  --api-key {PLANTED}-exec
"""
LOG = (
    f"INFO 11-23 20:23:51 [utils.py:278] non-default args: {{'model_tag': '{MODEL}', 'api_key': ['{PLANTED}-logged'], "
    f"'model': '{MODEL}', 'hf_token': '{PLANTED}-too'}}\n"
)
"""As vLLM 0.22 writes it, keys and all."""
TEXTS = {
    "a space": f"vllm serve {MODEL} --api-key {PLANTED}-1 {PLANTED}-2 --hf-token {PLANTED}-3",
    "an equals sign": f"vllm serve {MODEL} --api-key={PLANTED}-1 --hf-token={PLANTED}-3",
    "underscores": f"vllm serve {MODEL} --api_key {PLANTED}-1 --hf_token={PLANTED}-3 --ssl_keyfile {PLANTED}.pem",
    "export": f"export HF_TOKEN={PLANTED}-1 AWS_SECRET_ACCESS_KEY='{PLANTED} 2'\nvllm serve {MODEL}",
    "in front": f"VLLM_S3_SECRET={PLANTED}-1 ANY={PLANTED}-2 env VLLM_X_TOKEN={PLANTED}-3 vllm serve {MODEL}",
    "a variable": f"K={PLANTED}-1\nvllm serve {MODEL} --api-key $K --hf-token ${{TOKEN:-{PLANTED}-2}}",
    "docker": f"docker run -e HF_TOKEN={PLANTED}-1 --env=VLLM_API_KEY={PLANTED}-2 -eVLLM_PASSWORD={PLANTED}-3 "
    f"vllm/vllm-openai:v0.22.1 --model {MODEL} --api-key {PLANTED}-4",
    "a shell": f"bash -c 'export HF_TOKEN={PLANTED}-1; vllm serve {MODEL} --api-key {PLANTED}-2'",
    "JSON": f"vllm serve {MODEL} --additional-config '{OTHER}'",
    "a field": f"vllm serve {MODEL} --additional-config.a.auth_token {PLANTED}-1 "
    f"--additional-config.password={PLANTED}-2",
    "a URL": f"vllm serve {MODEL} --otlp-traces-endpoint https://me:{PLANTED}-1@example.org/x",
    "words in JSON": f"vllm serve {MODEL} --additional-config "
    f"""'{json.dumps({"args": ["--api-key", f"{PLANTED}-1"], "env": [["HF_TOKEN", f"{PLANTED}-2"]]})}'""",
    "JSON in JSON in JSON": f"""vllm serve {MODEL} --additional-config '{_nested({"api_key": PLANTED})}'""",
    "a header": f"""vllm serve {MODEL} --additional-config '{{"h": "Authorization: Digest me {PLANTED}"}}'""",
    "kubernetes": KUBERNETES,
    "compose": COMPOSE,
    "values": VALUES,
    "a unit": UNIT,
    "a log": LOG,
}
BROKEN = {
    "an unknown flag": f"vllm serve {MODEL} --openai-api-kye={PLANTED}",
    "a word behind an empty flag": f"vllm serve --model {MODEL} --api-key= {PLANTED}",
    "a word behind an empty flag and a model": f"vllm serve {MODEL} --api-key= {PLANTED}",
    "words behind a key": f"vllm serve {MODEL} --api-key=one {PLANTED}",
    "a registry": f"docker run me:{PLANTED}@registry.example/image:1 --port 80",
    "an unknown flag with a space": f"vllm serve {MODEL} --my-token {PLANTED}",
    "an open quotation": f"HF_TOKEN={PLANTED}-1 ANY={PLANTED}-2 vllm serve {MODEL} --api-key {PLANTED}-3 --port '80",
    "no command": f"HF_TOKEN={PLANTED}-1 sglang serve --api-key {PLANTED}-2",
    "JSON of a connector": f"vllm serve {MODEL} --kv-transfer-config '{EXTRA}'",
    "a field of a connector": f"vllm serve {MODEL} --kv-transfer-config.kv_connector OffloadingConnector "
    f"--kv-transfer-config.kv_connector_extra_config.auth_token {PLANTED}-1",
    "a dash of a word processor": f"vllm serve {MODEL} \u2014api-key {PLANTED}",
    "a command of a shell": f"vllm serve {MODEL} --max-num-seqs $(echo {PLANTED} | base64 -d)",
    "JSON with too many backslashes": f"vllm serve {MODEL} --kv-transfer-config "
    f"""'{{\\"api_key\\": \\"{PLANTED}\\"}}'""",
    "half of a JSON": f"vllm serve {MODEL} --kv-transfer-config '" + EXTRA[:-40] + "'",
    "a number that is none": f"vllm serve {MODEL} --api-key {PLANTED}-1 --max-num-seqs many",
    "two containers": f"{KUBERNETES}---{KUBERNETES}",
    "a manifest that is none": f"args: [--api-key, {PLANTED}-1\nb: c\n  - HF_TOKEN={PLANTED}-2",
    "an alias": f"env: &a [{{name: X_TOKEN, value: {PLANTED}}}]\nb: *a\nargs: [--model, x]",
    "a tag": f'args: [--model, x]\nenv: {{HF_TOKEN: !!int "{PLANTED}"}}',
    "a log of another": "non-default args: {'model': 'x', 'api_key': ['" + PLANTED + "', <<<",
}


def contents(folder: Path) -> Iterator[str]:
    """Everything below a folder, as text."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield str(pyarrow.parquet.read_table(path).to_pylist())
            yield str(pyarrow.parquet.read_schema(path).metadata)
        elif path.is_file():
            yield path.read_bytes().decode(errors="replace")


def clean(outcome: Outcome, *, code: int = 0) -> str:
    """What was said, which holds no secret."""
    said = outcome.stdout + outcome.stderr
    assert PLANTED not in said, said[max(0, said.find(PLANTED) - 200) :][:400]
    assert outcome.code == code, said
    return said


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_replay_holds_none(text: str, tmp_path: Path) -> None:
    assert PLANTED in text
    clean(call("run", *SHORT, *SMALL, "--serve", text, "--trace", "t", cwd=tmp_path))
    clean(call("run", *SHORT, *SMALL, "--serve", text, "--json", cwd=tmp_path))
    assert list(contents(tmp_path))
    assert not any(PLANTED in each for each in contents(tmp_path))


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("as_file", [False, True])
def test_an_error_says_none(text: str, as_file: bool, tmp_path: Path) -> None:
    given = text
    if as_file:
        (tmp_path / "serve.txt").write_text(text)
        given = "serve.txt"
    clean(call("run", *SHORT, *SMALL, "--serve", given, cwd=tmp_path), code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", f"{PLANTED}-1"],
        ["--hf_token", f"{PLANTED}-1", "--ssl-keyfile", f"{PLANTED}"],
        ["--additional-config", OTHER],
        ["--config", "flags.yaml"],
    ],
)
def test_flags_of_our_own_command_line(words: list[str], tmp_path: Path) -> None:
    flags = f"api-key: {PLANTED}-1\nhf_token: [{PLANTED}-2]\nadditional-config: {OTHER}\n"
    (tmp_path / "flags.yaml").write_text(flags)
    said = clean(call("run", *SHORT, "--model", MODEL, *SMALL, *words, "--trace", "t", "--full", cwd=tmp_path))
    assert words[0].replace("_", "-") in said or words[0] == "--config"
    (tmp_path / "flags.yaml").unlink()
    assert not any(PLANTED in each for each in contents(tmp_path))


def test_a_file_of_flags_that_cannot_be_read(tmp_path: Path) -> None:
    for content in (f"api-key: [{PLANTED}\n", f"api-key: !x {PLANTED}\n", f'hf-token: !!int "{PLANTED}"\n'):
        (tmp_path / "flags.yaml").write_text(content)
        clean(call("run", *SHORT, *SMALL, "--config", "flags.yaml", cwd=tmp_path), code=2)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_mistyped_flag(command: str, tmp_path: Path) -> None:
    clean(call(command, "chat", f"--api-kye={PLANTED}", cwd=tmp_path), code=2)


@pytest.mark.parametrize("command", ["run", "report", "serve"])
@pytest.mark.parametrize("words", [["--openai-api-key", PLANTED], ["chat", "--api-key=", PLANTED]])
def test_a_flag_that_holds_a_key(command: str, words: list[str], tmp_path: Path) -> None:
    """One of a replay, of a trace and of a server: all commands hide their words in one place."""
    clean(call(command, *words, cwd=tmp_path), code=2)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_place_with_a_password(command: str, tmp_path: Path) -> None:
    for place in (f"https://me:{PLANTED}@example.org/x.jsonl", f"me:{PLANTED}@registry.example/image"):
        said = call(command, place, cwd=tmp_path)
        assert PLANTED not in said.stdout + said.stderr
        assert said.code != 0 or command == "demo"


def test_users_of_a_log_that_are_keys(tmp_path: Path) -> None:
    key = f"sk-{PLANTED}0123456789abcdefgh"
    rows = [f"{1764000000 + i},100,20,{key if i % 2 else 'bob'},{key}-{i},s-{i // 4}" for i in range(12)]
    head = "timestamp,prompt_tokens,completion_tokens,user,id,session_id"
    (tmp_path / "log.csv").write_text("\n".join([head, *rows]))
    clean(call("import", "log.csv", "--output", "w.jsonl", cwd=tmp_path))
    clean(call("run", "log.csv", "--model", MODEL, *SMALL, "--trace", "t", cwd=tmp_path))
    clean(call("report", "t", "--json", cwd=tmp_path))
    (tmp_path / "log.csv").unlink()
    assert not any(PLANTED in each for each in contents(tmp_path))
    jobs = {json.loads(line).get("job_id") for line in (tmp_path / "w.jsonl").read_text().splitlines()[1:]}
    assert len(jobs) == 6


EVERYTHING = (
    f"HF_TOKEN={PLANTED}-1 VLLM_S3_SECRET={PLANTED}-2 vllm serve {MODEL} --api-key {PLANTED}-3 --hf-token={PLANTED}-4 "
    f"--otlp-traces-endpoint http://me:{PLANTED}-5@h --max-num-seqs 8"
)


ASKED_HERE = {"compare", "convert", "export", "plan", "query", "report", "run", "split", "sweep", "whatif", "why"}
"""Commands that the next test calls with what is pasted, or with a trace of it."""
ASKED_ELSEWHERE = {"agents", "check", "doctor", "emulate", "headroom", "import", "upgrade", "view"}
"""In the tests behind it, and in the one about a log's users."""
NEVER_TOLD = {"accuracy", "ask", "demo", "describe", "parity", "serve", "watch", "workloads"}
"""Commands that take no text of a deployment and no log; mistyped flags and places of theirs are tested above."""


def test_every_command_is_somewhere() -> None:
    assert set(COMMANDS) == ASKED_HERE | ASKED_ELSEWHERE | NEVER_TOLD


def test_every_command_holds_none(tmp_path: Path) -> None:
    serve = (*SMALL, "--serve", EVERYTHING)
    said = clean(call("run", *SHORT, *serve, "--trace", "t", "--full", cwd=tmp_path))
    assert "--api-key ***" in said
    clean(call("report", "t", cwd=tmp_path))
    clean(call("report", "t", "--full", cwd=tmp_path))
    clean(call("report", "t", "--json", cwd=tmp_path))
    clean(call("why", "t", cwd=tmp_path))
    clean(call("export", "t", "--html", "p.html", cwd=tmp_path))
    clean(call("export", "t", "--chrome", "c.json", cwd=tmp_path))
    clean(call("query", "t", "select * from steps limit 3", cwd=tmp_path))
    clean(call("compare", *SHORT, *serve, "--policies", "fcfs,priority", cwd=tmp_path))
    clean(call("compare", "t", "t", cwd=tmp_path))
    clean(call("split", *SHORT, *serve, "--split", "1+1", "--trace", "s", cwd=tmp_path))
    plan = ("plan", *SHORT, *serve, "--space", "max_num_seqs=4,8", "--slo", "ttft:1000")
    assert "--api-key" in clean(call(*plan, "--html", "plan.html", cwd=tmp_path))
    clean(call(*plan, "--json", cwd=tmp_path))
    clean(call("sweep", *SHORT, *serve, "--set", "max_num_seqs=4,8", "--html", "s.html", "--traces", cwd=tmp_path))
    clean(call("whatif", "t", "--serve", EVERYTHING, "--yes", cwd=tmp_path))
    clean(call("whatif", "t", "--serve", EVERYTHING, "--yes", "--json", cwd=tmp_path))
    clean(call("whatif", "t", "--serve", f"{EVERYTHING} --api-kye {PLANTED}", "--yes", cwd=tmp_path), code=2)
    clean(call("convert", "t", cwd=tmp_path))
    found = list(contents(tmp_path))
    assert len(found) > 8
    assert not any(PLANTED in each for each in found)


def test_an_upgrade_and_a_study_hold_none(tmp_path: Path) -> None:
    upgrade = ("upgrade", *SHORT, *SMALL, "--from", "0.27", "--to", "0.33", "--serve", EVERYTHING)
    clean(call(*upgrade, cwd=tmp_path))
    clean(call(*upgrade, "--json", cwd=tmp_path))
    headroom = ("headroom", f"{EVERYTHING} --max-model-len 8192", "--gpu", "l4", "--ignore-unmodelled")
    clean(call(*headroom, cwd=tmp_path))
    clean(call(*headroom, "--json", cwd=tmp_path))
    one = Deployment(EVERYTHING, gpu="l4", max_model_len=8192, ignore_unmodelled=True)
    asked = study("chat", one, output=tmp_path / "study", limit=4)
    kept = list(contents(tmp_path))
    assert len(kept) >= 1
    assert not any(PLANTED in each for each in (*kept, repr(one), repr(asked), str(asked), str(asked.to_dict())))


def test_a_doctor_a_check_and_a_table_of_agents_hold_none(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text(f"{EVERYTHING} --max-model-len 8192\n")
    serve = (*SMALL, "--serve", EVERYTHING)
    turns = [
        {"request_id": f"r{at}", "arrival_time": at, "prompt_len": 100 * at + 9, "max_tokens": 4, "job_id": "j"}
        for at in range(3)
    ]
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    clean(call("agents", "jobs.jsonl", *serve, "--dram", "none", "--seeds", "1", cwd=tmp_path))
    call("run", *SHORT, *SMALL, "--trace", "t", cwd=tmp_path)
    check = ("check", "start.sh", "--against", "t", "--gpu", "l4")
    for words in (check, (*check, "--markdown"), (*check, "--json")):
        assert PLANTED not in "".join(call(*words, cwd=tmp_path)[1:3])
    (tmp_path / "a.prom").write_text("vllm:num_requests_running 0\nvllm:num_requests_waiting 5\n")
    for more in ("", "--json", "--prom-rules"):
        asked = ("doctor", "a.prom", "--serve", f"{EVERYTHING} --max-model-len 8192", "--gpu", "l4", *more.split())
        said = call(*asked, cwd=tmp_path)
        assert PLANTED not in said.stdout + said.stderr


def test_an_emulated_server_tells_none(tmp_path: Path) -> None:
    """Its start-up log, its answers and its trace, which is what the viewer reads, too."""
    line = f"{EVERYTHING} --max-model-len 8192"
    command = (sys.executable, "-u", "-m", "tokenyard.cli.main", "emulate", line, "--gpu", "l4", "--port", "0")
    with subprocess.Popen(
        [*command, "--ignore-unmodelled", "--trace", "t"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        said = []
        for line in server.stdout:
            said.append(line)
            if found := re.search(r"ready at (http://\S+?)[, ]", line):
                break
        else:
            pytest.fail("".join(said))
        right = f"Bearer {PLANTED}-3"
        for path, key in (("/version", ""), ("/v1/models", ""), ("/v1/models", "Bearer other"), ("/metrics", right)):
            request = urllib.request.Request(found[1].rstrip("/") + path, headers={"Authorization": key})
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    said.append(answer.read().decode())
            except urllib.error.HTTPError as error:
                said.append(error.read().decode())
        server.send_signal(signal.SIGTERM)
        rest = server.communicate(timeout=60)[0]
    text = "".join([*said, rest, *contents(tmp_path)])
    assert all(each in text for each in ("vllm:num_requests_running", "Unauthorized", '"list"')), text
    assert PLANTED not in text


def test_the_viewer_s_server_tells_none(tmp_path: Path) -> None:
    clean(call("run", *SHORT, *SMALL, "--serve", EVERYTHING, "--trace", "t", cwd=tmp_path))
    client = client_of([tmp_path])
    (trace,) = (tmp_path / "t").glob("*.jsonl")
    answers = [client.get("/"), client.get("/api/traces"), client.file(trace)]
    assert all(each.status_code == 200 for each in answers)
    assert not any(PLANTED in each.text for each in answers)
