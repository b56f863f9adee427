"""Words and their vectors, against counting by hand; and the refusal of files without text."""

import os
from math import log
from threading import Event, Thread

import pytest
import torch
from refusals import refused

from posenc.analysis import text as text_module
from posenc.analysis.text import REACH, _ppmi, load_text, novel


def test_ppmi_is_the_count_of_company_by_hand(text):
    ids, known = text.ids.tolist(), len(text.distinct)
    together = [[0] * known for _ in range(known)]
    for i, word in enumerate(ids):
        for j in range(max(0, i - REACH), min(len(ids), i + REACH + 1)):
            together[word][ids[j]] += i != j
    each, total = [sum(row) for row in together], sum(map(sum, together))
    for a in range(known):
        for b in range(known):
            if together[a][b]:
                expected = max(0.0, log(together[a][b] * total / (each[a] * each[b])))
                assert _ppmi(text.ids, known)[a, b].item() == pytest.approx(expected, abs=1e-5)


def test_equal_words_get_one_vector_of_the_promised_length(text):
    vectors = text.vectors(8)
    assert vectors.shape == (len(text.distinct), 8)
    torch.testing.assert_close(vectors.norm(dim=-1), torch.full((len(text.distinct),), 8**0.5))


def test_days_of_the_week_keep_like_company_in_the_novel():
    text = novel()
    vectors, number = text.vectors(64), {word: n for n, word in enumerate(text.distinct)}
    like = (vectors @ vectors[number["tuesday"]]).topk(8).indices
    assert {"wednesday", "monday"} & {text.distinct[n] for n in like}


def test_vectors_are_the_same_each_time_and_no_global_seed_is_touched(text):
    state = torch.get_rng_state()
    assert text.vectors(8).equal(text.vectors(8))
    assert torch.get_rng_state().equal(state)


def test_a_sentence_ends_at_its_mark_and_never_spans_a_heading(text):
    found = [" ".join(text.words[span]) for span in text.sentences()]
    assert found[:2] == ["the dog bites the man .", "the man bites the old dog , the man said ."]
    book = novel()
    for span in book.sentences():
        assert "chapter" not in book.words[span][:2]


def test_windows_lie_within_the_text(text):
    assert text.windows(10, 3).shape == (3, 10)
    assert text.windows(10_000, 3).shape == (1, len(text.words))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "32 words, got 0"),
        (b"too short", "32 words, got 2"),
        (b"\x89PNG\r\n\x1a\n\0\0", "zero bytes"),
        (b"caf\xe9 " * 50, "UTF-8.* byte 3 is 0xe9"),
    ],
)
def test_says_what_is_no_text(tmp_path, content, says):
    path = tmp_path / "given"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        load_text(path)


def test_says_what_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*absent"):
        load_text(tmp_path / "absent")
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        load_text(tmp_path)


def test_a_byte_order_mark_is_no_word(tmp_path):
    path = tmp_path / "given.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"word " * 40)
    assert load_text(path).words == ["word"] * 40


def test_a_list_of_words_without_end_is_refused_before_vectors_are_made(tmp_path, monkeypatch):
    """Vectors of 5 million words, as in a file of 30 MB, would take 5 GB, some of it thrice."""
    assert text_module.MOST_DISTINCT * 256 * 4 <= 2**29
    monkeypatch.setattr(text_module, "MOST_DISTINCT", 1000)
    path = tmp_path / "list.txt"
    path.write_text(" ".join(f"{n:x}" for n in range(1001)))
    with refused(ValueError, "1,001", "1,000"):
        load_text(path)


def test_vectors_are_scaled_where_they_are():
    """Against the formula written out of place."""
    text = novel()
    vectors = text.vectors(32)
    made = torch.randn(len(text.distinct), 32, generator=torch.Generator().manual_seed(0))
    rare = 32**0.5 * torch.nn.functional.normalize(made, dim=-1)
    torch.testing.assert_close(vectors[3000:], rare[3000:], rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a FIFO")
def test_a_pipe_is_read_to_its_end_and_not_waited_for_without_a_writer(tmp_path, monkeypatch):
    """A pipe comes from `--text <(zcat book.gz)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with refused(ValueError, 0):
        load_text(pipe)
    opens, opened, writer = text_module._without_waiting, Event(), os.open(pipe, os.O_RDWR)

    def open_and_say_so(path, flags):
        handle = opens(path, flags)
        opened.set()
        return handle

    def write():
        os.write(writer, b"a word " * 40)
        opened.wait(60)  # a pipe that nobody has open forgets what was written
        os.close(writer)

    monkeypatch.setattr(text_module, "_without_waiting", open_and_say_so)
    Thread(target=write).start()
    assert len(load_text(pipe).words) == 80
