"""Outcomes against prompts that are read one by one, by loops."""

from dataclasses import replace
from random import Random
from statistics import mean

import pytest
import torch

from posenc.lab.study import tasks, train
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell, Profile
from posenc.lab.study.evaluate import evaluate, grade, predict, with_resized_table

PROFILE = Profile(width=32, heads=2, layers=1, steps=60, batch=16, rate=1e-2, warmup=10, prompts=40)
DIGITS = tasks.Task("digits", tasks.parity, tasks.BITS, trained=4, tested=(3, 6))


def trained(encoding="alibi", task=DIGITS, **changes):
    cell = Cell(task.name, encoding, 0, profile=PROFILE, **changes)
    model = build(cell, len(task.vocabulary))
    train.fit(model, cell, task)
    return model.eval(), cell


def prompts(cell, task, n):
    return task.batch([n] * 40, Random(f"evaluation {task.name} {n}"), held_out=True)


def whole(batch):
    """The texts from the first token to the last."""
    return torch.cat((batch.inputs, batch.targets[:, -1:]), -1)


def test_a_text_is_right_when_each_answer_is_the_likeliest():
    model, cell = trained()
    outcomes = evaluate(model, cell, DIGITS)
    assert {key for key in outcomes} == {
        (protocol, n)
        for protocol in (
            "forced",
            "tokens",
            "generated",
            "endless",
            "windowed",
            "cropped",
            "shuffled",
        )
        for n in (3, 6)
    }
    for n in (3, 6):
        expected = []
        for text in whole(prompts(cell, DIGITS, n)).tolist():
            right = True
            for place in (n + 2, n + 3):  # <bos>, n bits, <sep>, then the answer and <eos>
                logits = model(torch.tensor([text[:place]]))[0, -1]
                right = right and logits.argmax().item() == text[place]
            expected.append(right)
        assert outcomes["forced", n].tolist() == expected
        assert 0 < sum(expected) < 40  # or the test shows nothing


def test_a_cropped_text_is_read_from_its_last_tokens():
    """One text after the other, as a text of training: <bos>, then its last tokens."""
    model, cell = trained()
    outcomes = evaluate(model, cell, DIGITS)
    expected = []
    for text in whole(prompts(cell, DIGITS, 6)).tolist():
        # A text of training has <bos>, 4 bits, <sep>, the answer, <eos>, of which 7 are read
        seen = [text[0], *text[-8:][1:]]
        said = [model(torch.tensor([seen[:place]]))[0, -1].argmax().item() for place in (6, 7)]
        expected.append(said == text[-2:])
    assert outcomes["cropped", 6].tolist() == expected
    assert outcomes["cropped", 3].tolist() == outcomes["forced", 3].tolist()
    assert outcomes["cropped", 6].tolist() != outcomes["forced", 6].tolist()


def test_an_answer_that_is_cropped_away_is_wrong():
    """A copy of six words, cropped to the longest text of training, has its last ones alone."""
    task = tasks.Task("copy", tasks.copy, tasks.WORDS, 1, tested=(1, 6))
    model, cell = trained(task=task)
    outputs = predict(model, cell, task)
    batch = task.batch([6] * 40, Random("evaluation copy 6"), held_out=True)
    kept = outputs["6/0/cropped"].shape[1]
    assert kept == 4
    # Even a model that gives all answers that it sees
    outputs["6/0/cropped"] = batch.targets[:, -kept:]
    assert not grade(outputs, cell, task)["cropped", 6].any()


def test_the_share_of_tokens_is_that_of_answers_after_the_true_ones():
    model, cell = trained()
    outcomes = evaluate(model, cell, DIGITS)
    texts, expected = whole(prompts(cell, DIGITS, 6)).tolist(), []
    for text in texts:
        said = [model(torch.tensor([text[:place]]))[0, -1].argmax().item() for place in (8, 9)]
        expected.append(mean(a == b for a, b in zip(said, text[8:10], strict=True)))
    assert outcomes["tokens", 6].tolist() == expected
    assert {0.5, 1.0} <= {*expected}


def test_without_its_end_a_text_is_right_that_was_ended_early():
    """A model that always predicts <eos>, otherwise right answers; compared with `generated`."""
    task = tasks.find("copy-constant").at(3, (3,))
    model, cell = trained(task=task)
    with torch.no_grad():
        outcomes = evaluate(model, cell, task)
        assert (outcomes["endless", 3] | ~outcomes["generated", 3]).all()
        model.head.weight[tasks.MARKS.index(tasks.END)] *= 1e6
        ended = evaluate(model, cell, task)
    assert not ended["generated", 3].any()
    assert torch.equal(ended["endless", 3], outcomes["endless", 3])
    assert ended["endless", 3].any()


@pytest.mark.parametrize("encoding", ["alibi", "normalized"])
def test_generated_answers_are_those_of_generate(encoding):
    """With a cache, and with `Normalized`, which rejects one and reads the whole text again."""
    model, cell = trained(encoding)
    outcomes = evaluate(model, cell, DIGITS)
    for n in (3, 6):
        texts = whole(prompts(cell, DIGITS, n))
        said = model.generate(texts[:, : n + 2], 2)
        assert outcomes["generated", n].tolist() == (said == texts).all(-1).tolist()


def test_answers_between_what_is_given_are_graded_after_the_models_own():
    """Flip-flop: an answer is read again; against a loop that reads the whole text each time."""
    task = tasks.find("flip-flop").at(4, (4,))
    model, cell = trained(task=task)
    batch = prompts(cell, task, 4)
    expected = []
    for text, answers in zip(whole(batch), batch.answers.tolist(), strict=True):
        graded = [False, *answers]
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
    for text in whole(batch):
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
        torch.equal(a.inputs, b.inputs) for a, b in zip(seen[:half], seen[half:], strict=True)
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
        for row, text in enumerate(whole(batch)[:3]):
            bits = []
            for place in range(1, n + 1):
                share = model(text[None, :place])[0, -1].softmax(-1)[text[place]]
                bits.append(-share.log2().item())
            apart, sliding = sum(bits) / n, sum(bits[-4:]) / 4
            assert outcomes["apart", n][row].item() == pytest.approx(apart)
            assert outcomes["sliding", n][row].item() == pytest.approx(sliding)
        means = outcomes["position", n]
        assert means.shape == (n,)
        assert means.mean().item() == pytest.approx(outcomes["apart", n].mean().item())


def test_cropped_is_the_last_of_the_text_read_alone(speaking):
    model, cell, task = speaking
    outcomes, batch = evaluate(model, cell, task, (32,)), prompts(cell, task, 32)
    for row, text in enumerate(whole(batch)[:3]):
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


def test_an_encoder_is_graded_at_the_places_of_its_answers():
    """Sentences of several lengths' labels, each read alone, without filling."""
    sentences = [
        (" ".join(Random(n).choices(["good", "fine", "film"], k=1 + n % 9)), "yes")
        for n in range(500)
    ] + [
        (" ".join(Random(n).choices(["bad", "poor", "film"], k=1 + n % 9)), "no")
        for n in range(500)
    ]
    Random(0).shuffle(sentences)
    task = tasks.sentences(sentences, trained=4)
    model, cell = trained("rope", task)
    outcomes = evaluate(model, cell, task)
    assert {protocol for protocol, _ in outcomes} == {"forced", "tokens", "windowed", "shuffled"}
    assert max(n for _, n in outcomes) == 9
    batch = prompts(cell, task, 7)
    said = [model(text[None])[0, 0].argmax().item() for text in batch.inputs]
    right = [one == label for one, label in zip(said, batch.targets[:, 0].tolist(), strict=True)]
    assert outcomes["forced", 7].tolist() == right
    assert sum(right) > 20


def test_texts_of_several_lengths_do_not_see_the_filling():
    task = tasks.masked(["a", "b", "c", "d"] * 400, trained=8)
    cell = Cell(task.name, "alibi", 0, profile=PROFILE)
    model = build(cell, len(task.vocabulary), both_ways=True)
    together = task.batch([4, 8, 6], Random(2))
    random = Random(2)
    losses = [
        train.loss_of(model, cell, task, task.batch([n], random), Random(0)) for n in (4, 8, 6)
    ]
    answers = together.answers.sum(-1)
    mean = (torch.stack(losses) * answers).sum() / answers.sum()
    torch.testing.assert_close(train.loss_of(model, cell, task, together, Random(0)), mean)


def test_hidden_words_are_graded_in_bits():
    task = tasks.masked(["a", "b", "c", "d"] * 400, trained=8)
    model, cell = trained(task=task)
    outcome = evaluate(model, cell, task, (8,))["apart", 8]
    batch = prompts(cell, task, 8)
    for row in range(3):
        logits = model(batch.inputs[row : row + 1])[0]
        bits = [
            -logits[place].softmax(-1)[batch.targets[row, place]].log2().item()
            for place in range(9)
            if batch.answers[row, place]
        ]
        assert outcome[row].item() == pytest.approx(sum(bits) / len(bits), rel=1e-4)


def test_pictures_stand_on_a_plane_for_encodings_of_two_axes():
    pictures = torch.rand(60, 4, 4, generator=torch.Generator().manual_seed(0))
    task = tasks.images(pictures, [n % 3 for n in range(60)])
    cell = Cell(task.name, "rope-mixed", 0, profile=PROFILE)
    model = build(cell, len(task.vocabulary), both_ways=True)
    assert model.axes == 2
    batch = task.batch([4, 4], Random(0))
    assert batch.points.tolist()[:6] == [[0, 0], [1, 1], [1, 2], [1, 3], [1, 4], [2, 1]]
    on_plane = model(batch.inputs, points=batch.points)
    x = model.embedding(batch.inputs)
    for block in model.blocks:
        x = block(x, batch.points)
    torch.testing.assert_close(on_plane, model.head(model.norm(x)))
    assert not torch.allclose(on_plane, model(batch.inputs))
    outcomes = evaluate(model, cell, task)
    assert sorted({n for _, n in outcomes}) == [4, 5, 6, 8]


@pytest.mark.parametrize(("length", "resized"), [(1 + 8 * 8, True), (1 + 12 * 12, False)])
def test_a_learned_table_of_the_training_pictures_is_resized_to_larger_ones(length, resized):
    """Against the table that `torch.nn.functional.interpolate` makes, in a model of its size."""
    task = tasks.find("marks-order").at(8, (8, 12))
    cell = Cell(task.name, "learned", 0, profile=PROFILE, options={"length": length})
    model = build(cell, len(task.vocabulary), both_ways=True)
    table = model.blocks[0].attention.encoding.table.data.normal_()
    outputs = predict(model, cell, task)
    if resized:
        grid = table[1:].reshape(1, 8, 8, -1).movedim(-1, 1)
        larger = torch.nn.functional.interpolate(grid, (12, 12), mode="bicubic")
        table = torch.cat((table[:1], larger.flatten(2)[0].T))
    batch = prompts(cell, task, 12)
    twelve = build(replace(cell, options={"length": 145}), len(task.vocabulary), both_ways=True)
    weights = {name: x for name, x in model.state_dict().items() if not name.endswith("table")}
    twelve.load_state_dict(weights, strict=False)
    twelve.blocks[0].attention.encoding.table.data = table
    expected = twelve.eval()(batch.inputs)
    torch.testing.assert_close(with_resized_table(model, task, 145)(batch.inputs), expected)
    chosen = expected[batch.answers].argmax(-1)
    assert outputs["12/0/forced"][batch.answers].tolist() == chosen.tolist()
    assert with_resized_table(model, task, 65) is model


@pytest.mark.parametrize("name", ["copy", "language", "masked"])
def test_saved_predictions_are_graded_without_the_model_as_it_is(name):
    """The other process has tensors of tokens or logits alone; a text is one of few words here."""
    task = tasks.find(name).at(8, (8, 12))
    profile = replace(PROFILE, steps=3, prompts=5)
    cell = Cell(name, "alibi", 0, profile=profile, trained=8, tested=(8, 12))
    model = build(cell, len(task.vocabulary), task.both_ways)
    predictions = predict(model, cell, task)
    outcomes, expected = grade(predictions, cell, task), evaluate(model, cell, task)
    assert {*outcomes} == {*expected}
    for key, values in expected.items():
        assert torch.equal(outcomes[key], values), key
    first = next(iter(predictions))
    for damaged in (
        {key: x for key, x in predictions.items() if key != first},
        predictions | {first: predictions[first][:1]},
        predictions | {first: predictions[first].double()},
        predictions | {"99/0/forced": predictions[first]},
    ):
        with pytest.raises(ValueError, match="must be"):
            grade(damaged, cell, task)
