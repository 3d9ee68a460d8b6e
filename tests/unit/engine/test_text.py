"""Text: output piece by piece, stop strings, chat templates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toy_model import EOS, byte_tokenizer, toy_tokenizer
from tokenizers import decoders, models, pre_tokenizers

from tokenyard.errors import ConfigError
from tokenyard.serve.text import ChatTemplate, Detokenizer, Stopped, StopStrings, TemplateError, TextTokenizer

BYTES = toy_tokenizer()


def word_tokenizer() -> TextTokenizer:
    """As SentencePiece's: a leading space belongs to a word, unknown characters are bytes."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "▁bc", "a", "b", "c", "▁", "."]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocab={word: i for i, word in enumerate(words)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            ignore_merges=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return TextTokenizer(tokenizer)


WORDS = word_tokenizer()


def pieces_of(tokenizer: TextTokenizer, prompt: list[int], ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [*(detokenizer.add(token) for token in ids), detokenizer.flush()]


# ---- output


@pytest.mark.slow
@given(prompt=st.text(min_size=1), answer=st.text())
def test_pieces_together_are_the_text(prompt: str, answer: str) -> None:
    for tokenizer in (BYTES, WORDS):
        before, ids = tokenizer.encode(prompt), tokenizer.encode(answer)
        whole, alone = tokenizer.decode([*before, *ids]), tokenizer.decode(before)
        assert "".join(pieces_of(tokenizer, before, ids)) == whole[len(alone) :]


@given(answer=st.text(), cut=st.integers(1, 3))
def test_no_piece_ends_within_a_character(answer: str, cut: int) -> None:
    pieces = pieces_of(BYTES, [65], BYTES.encode(answer + "🦊")[:-cut])
    assert "".join(pieces[:-1]) == answer
    assert pieces[-1] == "\ufffd"


@given(st.lists(st.integers(0, 271)))
def test_any_tokens_give_some_text(ids: list[int]) -> None:
    for tokenizer in (BYTES, WORDS):
        text = "".join(pieces_of(tokenizer, [40], ids))
        whole = tokenizer.decode([40, *ids])[len(tokenizer.decode([40])) :]
        if "\ufffd" not in text + whole:
            assert text == whole


def test_bytes_that_make_no_character_are_not_held_for_ever() -> None:
    pieces = pieces_of(BYTES, [65], [0x80] * 40)
    assert len("".join(pieces[:-1])) >= 24


def test_a_special_token_has_no_text_and_leaves_the_space_after_it() -> None:
    a, end = WORDS.encode("a"), WORDS.vocab_size - 1
    assert pieces_of(WORDS, a, [end, *a, *a]) == ["", " a", " a", ""]
    detokenizer = Detokenizer(BYTES, [65], skip_special_tokens=False)
    assert detokenizer.add(EOS) == "</s>"


# ---- stop strings


def test_a_stop_string_over_several_pieces() -> None:
    stops = StopStrings(["END", "\n\n"])
    assert stops.held_back() == 2
    assert stops.find("one E", 1) is None
    assert stops.find("one END", 2) == Stopped("one ", "END")
    assert StopStrings(["END"], include=True).find("one END.", 3) == Stopped("one END", "END")


def test_the_stop_string_that_begins_first_counts() -> None:
    assert StopStrings(["c", "bc", "abc"]).find("xabcx", 5) == Stopped("x", "abc")


@given(st.text("ab"), st.lists(st.text("ab", min_size=1), min_size=1), st.integers(1, 4))
def test_a_stop_string_is_found_as_soon_as_it_is_there(text: str, stops: list[str], width: int) -> None:
    asked, shown = StopStrings(stops), ""
    for start in range(0, len(text), width):
        piece = text[start : start + width]
        shown += piece
        found = asked.find(shown, len(piece))
        assert (found is not None) == any(stop in shown for stop in stops)
        if found is not None:
            assert shown.startswith(found.text + found.stop)
            assert len(found.text) == min(shown.find(stop) for stop in stops if stop in shown)
            return


# ---- chat templates


def test_a_template_renders_as_transformers_does() -> None:
    source = "{% for m in messages %}\n    {%- generation %}{{ m.content | tojson }}{% endgeneration %}\n"
    source += "{% endfor %}|{{ eos_token }}{{ x }}"
    template = ChatTemplate(source, {"eos_token": "</s>"})
    assert template.render([{"content": "<é>"}, {"content": "b"}], variables={"x": 1}) == '"<é>""b"|</s>1'


def test_what_a_template_refuses_is_one_error() -> None:
    template = ChatTemplate("{{ raise_exception('no system role') }}", {})
    with pytest.raises(TemplateError, match="no system role"):
        template.render([])
    for source in ("{{ messages[3].content.x }}", "{{ ''.__class__.__mro__ }}", "{{ 1 / 0 }}", "{{ messages + 1 }}"):
        with pytest.raises(TemplateError):
            ChatTemplate(source, {}).render([])
    with pytest.raises(ConfigError, match="is no template"):
        ChatTemplate("{% for %}", {})


def test_a_models_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer"):
        TextTokenizer.load(tmp_path)
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    assert TextTokenizer.load(tmp_path).chat_template is None
    config = {"chat_template": [{"name": "default", "template": "{{ bos_token }}!"}], "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = TextTokenizer.load(tmp_path)
    assert loaded.chat_template is not None
    assert loaded.chat_template.render([]) == "<s>!"
    assert loaded.decode(loaded.encode("héllo")) == "héllo"
    (tmp_path / "chat_template.jinja").write_text("own")
    loaded = TextTokenizer.load(tmp_path)
    assert loaded.chat_template is not None
    assert loaded.chat_template.render([]) == "own"
