"""Outcomes against prompts that are read one by one, by loops."""

from random import Random

import pytest
import torch

from posenc.study import tasks, train
from posenc.study.build import build
from posenc.study.cell import Cell, Profile
from posenc.study.evaluate import evaluate

PROFILE = Profile(width=32, heads=2, layers=1, steps=60, batch=16, rate=1e-2, warmup=10, prompts=40)
DIGITS = tasks.Task("digits", tasks.parity, tasks.BITS, trained=4, tested=(3, 6))


def trained(encoding="alibi", task=DIGITS, **changes):
    cell = Cell(task.name, encoding, 0, profile=PROFILE, **changes)
    model = build(cell, len(task.vocabulary))
    train.fit(model, cell, task)
    return model.eval(), cell


def prompts(cell, task, n):
    return task.batch([n] * 40, Random(f"evaluation {cell.task} {n}"), held_out=True)


def test_a_text_is_right_when_each_answer_is_the_likeliest():
    model, cell = trained()
    outcomes = evaluate(model, cell, DIGITS)
    assert {key for key in outcomes} == {
        (protocol, n)
        for protocol in ("forced", "generated", "windowed", "shuffled")
        for n in (3, 6)
    }
    for n in (3, 6):
        expected = []
        for text in prompts(cell, DIGITS, n).tokens.tolist():
            right = True
            for place in (n + 2, n + 3):  # <bos>, n bits, <sep>, then the answer and <eos>
                logits = model(torch.tensor([text[:place]]))[0, -1]
                right = right and logits.argmax().item() == text[place]
            expected.append(right)
        assert outcomes["forced", n].tolist() == expected
        assert 0 < sum(expected) < 40  # or the test shows nothing


def test_generated_answers_are_those_of_generate():
    model, cell = trained()
    outcomes = evaluate(model, cell, DIGITS)
    for n in (3, 6):
        batch = prompts(cell, DIGITS, n)
        said = model.generate(batch.tokens[:, : n + 2], 2)
        assert outcomes["generated", n].tolist() == (said == batch.tokens).all(-1).tolist()


def test_answers_between_what_is_given_are_graded_after_the_models_own():
    """Flip-flop: an answer is read again; against a loop that reads the whole text each time."""
    task = tasks.find("flip-flop").at(4, (4,))
    model, cell = trained(task=task)
    batch = prompts(cell, task, 4)
    expected = []
    for text, graded in zip(batch.tokens, batch.graded, strict=True):
        read, right = text[:1].clone(), True
        for place in range(1, len(text)):
            said = model(read.unsqueeze(0))[0, -1].argmax()
            right = right and (not graded[place] or said == text[place])
            read = torch.cat((read, (said if graded[place] else text[place]).reshape(1)))
        expected.append(bool(right))
    assert evaluate(model, cell, task)["generated", 4].tolist() == expected
    assert 0 < sum(expected) < 40


def test_positions_that_change_places_are_handed_to_the_model():
    """Against the prompts read at the same positions, one by one."""
    model, cell = trained("sinusoidal")
    outcomes, batch = evaluate(model, cell, DIGITS), prompts(cell, DIGITS, 6)
    random, expected, moved = Random("positions 6 40"), [], False
    for text in batch.tokens:
        pos = torch.tensor(random.sample(range(9), 9))
        logits = model(text[None, :-1], pos)[0]
        moved = moved or not torch.allclose(logits, model(text[None, :-1])[0])
        said = logits[-2:].argmax(-1)
        expected.append(said.equal(text[-2:]))
    assert outcomes["shuffled", 6].tolist() == expected
    assert moved
    assert 0 < sum(expected) < 40


def test_what_reads_no_positions_does_not_see_them_change_places():
    blind, cell = trained("nope")
    outcomes = evaluate(blind, cell, DIGITS)
    assert torch.equal(outcomes["shuffled", 6], outcomes["forced", 6])


def test_a_window_as_long_as_the_text_changes_nothing():
    model, cell = trained()
    outcomes = evaluate(model, cell, DIGITS, (3,))
    assert torch.equal(outcomes["windowed", 3], outcomes["forced", 3])


def test_the_prompts_are_the_same_for_every_seed_and_encoding(monkeypatch):
    seen = []
    original = tasks.Task.batch
    monkeypatch.setattr(
        tasks.Task, "batch", lambda *a, **k: seen.append(original(*a, **k)) or seen[-1]
    )
    for encoding, seed in (("nope", 0), ("rope", 5)):
        cell = Cell("digits", encoding, seed, profile=PROFILE)
        evaluate(build(cell, len(DIGITS.vocabulary)), cell, DIGITS)
    half = len(seen) // 2
    assert all(
        torch.equal(a.tokens, b.tokens) for a, b in zip(seen[:half], seen[half:], strict=True)
    )


@pytest.fixture(scope="module")
def speaking():
    letters = "".join(Random(0).choices("abcd ", k=4000))
    task = tasks.language(letters, trained=16)
    model, cell = trained(task=task)
    return model.double(), cell, task


def test_bits_per_character_are_those_of_a_loop(speaking):
    model, cell, task = speaking
    outcomes = evaluate(model, cell, task, (16, 32))
    for n in (16, 32):
        batch = prompts(cell, task, n)
        for row, text in enumerate(batch.tokens[:3]):
            bits = []
            for place in range(1, n + 1):
                share = model(text[None, :place])[0, -1].softmax(-1)[text[place]]
                bits.append(-share.log2().item())
            apart, sliding = sum(bits) / n, sum(bits[-4:]) / 4
            assert outcomes["apart", n][row].item() == pytest.approx(apart)
            assert outcomes["sliding", n][row].item() == pytest.approx(sliding)
        whole = outcomes["position", n]
        assert whole.shape == (n,)
        assert whole.mean().item() == pytest.approx(outcomes["apart", n].mean().item())


def test_cropped_is_the_last_of_the_text_read_alone(speaking):
    model, cell, task = speaking
    outcomes, batch = evaluate(model, cell, task, (32,)), prompts(cell, task, 32)
    for row, text in enumerate(batch.tokens[:3]):
        near, bits = torch.cat((text[:1], text[-16:])), []  # <bos> stands before the last 16
        for place in range(13, 17):
            share = model(near[None, :place])[0, -1].softmax(-1)[near[place]]
            bits.append(-share.log2().item())
        assert outcomes["cropped", 32][row].item() == pytest.approx(sum(bits) / 4)


def test_cropping_and_windows_change_nothing_within_the_trained_length(speaking):
    model, cell, task = speaking
    outcomes = evaluate(model, cell, task, (16,))
    for protocol in ("cropped", "windowed"):
        torch.testing.assert_close(outcomes[protocol, 16], outcomes["sliding", 16])
