"""What counts as a secret, and what is left of a text that holds one."""

from __future__ import annotations

from typing import Any

import pytest

from tokenyard.deploy.vllm_serve.flags import flag_table
from tokenyard.redaction import (
    hidden,
    hidden_beginning,
    hidden_environment,
    hidden_identity,
    hidden_setting,
    hidden_text,
    hidden_users,
    hidden_words,
    is_secret_name,
)


@pytest.mark.parametrize(
    "name",
    [
        "--api-key", "--hf_token", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID",
        "vllmApiKey", "APIKey", "redis-password", "db_passwd", "ssl-keyfile", "--ssl_certfile", "GOOGLE_CREDENTIALS",
        "sk", "redis.sk", "AK", "license", "license_file", "Licence",
        "Authorization", "kv_connector_extra_config.auth_token", "TOKEN_FILE", "client_secret",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_num_batched_tokens", "long-prefill-token-threshold", "num_key_value_heads", "eos_token_id", "tokenizer",
        "spec-tokens", "", "monitor", "kv_transfer_config", "model",
        "task", "disk", "sku", "ask", "break", "sk_size",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


def test_flags_of_vllm() -> None:
    """Nothing that a replay uses is taken for a secret; all that is, has no effect."""
    secret = {each.name for each in flag_table() if is_secret_name(each.name) and each.kind.has_value}
    assert secret == {
        "api-key", "hf-token", "ssl-ca-certs", "ssl-cert-reqs", "ssl-certfile", "ssl-ciphers", "ssl-keyfile"
    }  # fmt: skip
    assert all(flag_table()[name].effect.value == "no-effect" for name in secret)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("api-key", ["a", "b"], ["***"]),
        ("hf-token", "a", "***"),
        ("hf-token", None, None),
        ("x", {"num_key_value_heads": 8, "password": 12, "deep": [{"token": "t"}]},
         {"num_key_value_heads": 8, "password": "***", "deep": [{"token": "***"}]}),
        ("env", [{"name": "HF_TOKEN", "value": "a"}, {"name": "N", "value": "b"}],
         [{"name": "HF_TOKEN", "value": "***"}, {"name": "N", "value": "b"}]),
        ("url", "http://me:pw@host:1/x", "http://***@host:1/x"),
        ("url", "s3://id:pw/with/slash@bucket", "s3://***@bucket"),
        ("model", "hf://org/model@rev", "hf://org/model@rev"),
        ("max_tokens", 5, 5),
        ("x", {"args": ["--api-key", "a", "--port", "80"]}, {"args": ["--api-key", "***", "--port", "80"]}),
        ("env", [["HF_TOKEN", "a"], ["N", "b"]], [["HF_TOKEN", "***"], ["N", "b"]]),
        ("env", [{"Name": "HF_TOKEN", "Value": "a"}], [{"Name": "HF_TOKEN", "Value": "***"}]),
        ("headers", [{"key": "authorization", "val": "a"}], [{"key": "authorization", "val": "***"}]),
        ("x", {"key": "my secret", "n": 1}, {"key": "***", "n": 1}),
        ("x", {"redis_pass": "a", "pw": "b", "pass_config": {"n": 1}},
         {"redis_pass": "***", "pw": "***", "pass_config": {"n": 1}}),
        ("x", '{"in": "{\\"api_key\\": \\"a\\"}"}', '{"in": "{\\"api_key\\": \\"***\\"}"}'),
    ],
)  # fmt: skip
def test_values(name: str, value: Any, kept: Any) -> None:
    assert hidden(name, value) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("--api-key sk-1 --port 80", "--api-key *** --port 80"),
        ('{"api_key": "a, b", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("my token here", "my token here"),
        ("\u2014api-key a", "\u2014api-key ***"),
        ("\u2013\u2013api-key a", "\u2013\u2013api-key ***"),
        (r"{\"api_key\": \"a\"}", r"{\"api_key\": ***}"),
        ("Authorization: Digest user a", "Authorization: ***"),
        ("https://h/x?n=1&sig=a", "https://h/x?n=1&sig=***"),
        ("eyJhbGciOiJIUzI1NiJ9.abc.def", "***"),
        ("hf_abcdefghijklmnopqrst", "***"),
        ("docker run me:a@registry.example/image:1 x", "docker run ***@registry.example/image:1 x"),
        ("image 'me:a/b+c=@r:5000/i'", "image '***@r:5000/i'"),
        ("vllm:v0.22.1@sha256:abc", "vllm:v0.22.1@sha256:abc"),
        ("registry/vllm-openai:v0.22.1@sha256:abc", "registry/vllm-openai:v0.22.1@sha256:abc"),
        ("ask me: name@example.org", "ask me: name@example.org"),
        ("hf://org/model@rev", "hf://org/model@rev"),
        ("--api-key= a b", "--api-key= *** b"),
    ],
)
def test_texts(text: str, kept: str) -> None:
    assert hidden_text(text) == kept


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--api-kye", "a", "b"], ["--api-kye", "***", "***"]),
        (["--api-kye=a"], ["--api-kye=***"]),
        (["--limit", "5", "--api-key", "a"], ["--limit", "5", "--api-key", "***"]),
        (["--api-key=", "a"], ["--api-key=", "***"]),
        (["-x", "a", "--limit=5"], ["-x", "***", "--limit=5"]),
        (["me:a@registry/x"], ["***@registry/x"]),
    ],
)
def test_words_of_flags_that_nobody_knows(words: list[str], kept: list[str]) -> None:
    assert hidden_words(words, {"--limit", "--api-key"}) == kept


def test_messages_keep_names_of_settings() -> None:
    said = "api_key = 'x': give one; https://me:a@h/x and me:a@h/x cannot be read"
    assert hidden_users(said) == "api_key = 'x': give one; https://***@h/x and ***@h/x cannot be read"


@pytest.mark.parametrize(
    ("name", "value", "is_key"),
    [
        ("user", "bob", False),
        ("user", "bob@example.org", False),
        ("user", "3fa85f64-5717-4562-b3fc-2c963f66afa6", False),
        ("user", "sk-0123456789abcdefghijklmnop", True),
        ("user", "sk-live-key0123456", True),
        ("user", "sk_live_0123456789", True),
        ("user", "sk-learn-pipeline", False),
        ("user", "aB3dE6gH9jK2mN5pQ8sT1vW4", True),
        ("user", "0123456789abcdef0123456789abcdef", True),
        ("api_key", "short", True),
        ("api_key_id", "short", False),
    ],
)
def test_who_somebody_is(name: str, value: str, is_key: bool) -> None:
    kept = hidden_identity(name, value, is_person=True)
    assert (kept != value) == is_key
    assert kept == hidden_identity(name, value, is_person=True)
    assert kept == value or value not in kept


def test_requests_are_named_by_what_a_machine_has_drawn() -> None:
    assert hidden_identity("id", "0" * 32, is_person=False) == "0" * 32
    assert hidden_identity("session", "sk-" + "0" * 32, is_person=False).startswith("key-")


def test_beginnings_end_with_the_name_of_a_secret() -> None:
    assert hidden_beginning("A=1 vllm serve m --api-key 'x y") == "A=*** vllm serve m --api-key ***"
    assert hidden_beginning("echo hello") == "echo hello"


def test_settings_and_variables() -> None:
    assert hidden_setting('{"a": {"secret": 1}}') == '{"a": {"secret": "***"}}'
    assert hidden_setting('{"a": 1}') == '{"a": 1}'
    assert hidden_environment({"VLLM_A": "1", "VLLM_API_KEY": "k", "OTHER": "x"}) == {
        "VLLM_A": "1", "VLLM_API_KEY": "***", "OTHER": "***"
    }  # fmt: skip
