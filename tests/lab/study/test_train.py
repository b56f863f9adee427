"""Training against what a seed must decide, and against runs that were never stopped."""

import math
from contextlib import nullcontext
from dataclasses import replace
from random import Random

import pytest
import torch
from refusals import refused
from torch.nn.functional import log_softmax

from posenc import RoPE
from posenc.core.biases import pairs
from posenc.lab.study import tasks, train
from posenc.lab.study.build import build, encoding_of
from posenc.lab.study.cell import PROFILES, Cell, Profile
from posenc.lab.study.controls import draw_positions, mask_of

TINY = Profile(width=16, heads=2, layers=1, steps=6, batch=4, warmup=2, prompts=5)
COPY = tasks.find("copy").at(5, (5, 8))


def cell(**changes):
    return Cell("copy", "rope", 0, profile=TINY, trained=5, tested=(5, 8), **changes)


def steps_of(cell, **changes):
    model = build(cell, len(COPY.vocabulary))
    losses, _ = train.fit(model, replace(cell, **changes), COPY)
    return losses, model


def test_the_rate_rises_in_a_line_and_falls_along_a_cosine():
    profile = Profile(steps=1100, warmup=100, rate=2.0)
    assert train.rate(0, profile) == pytest.approx(0.02)
    assert train.rate(99, profile) == pytest.approx(2.0)
    assert train.rate(100, profile) == pytest.approx(2.0)
    assert train.rate(600, profile) == pytest.approx(1.1)  # the middle of 2.0 and 0.2
    assert train.rate(1100, profile) == pytest.approx(0.2)
    assert train.rate(350, profile) == pytest.approx(0.2 + 0.9 * (1 + math.cos(math.pi / 4)))


def test_only_linear_maps_of_the_transformer_decay():
    model = build(Cell("copy", "fire", 0, profile=TINY), len(COPY.vocabulary))
    names = {id(weight): name for name, weight in model.named_parameters()}
    decaying, others = train.adamw(model, TINY).param_groups
    assert {names[id(weight)] for weight in decaying["params"]} == {
        name
        for name in names.values()
        if name.endswith("weight") and ".encoding." not in name
        if not name.startswith(("embedding", "norm")) and "before" not in name
    }
    assert decaying["weight_decay"] == 0.1
    assert others["weight_decay"] == 0
    assert len(decaying["params"]) + len(others["params"]) == len(names)


def test_the_loss_is_that_of_the_answers_alone():
    """Against a loop over tokens, in float64."""
    one, batch = cell(), COPY.training(4, Random(1))
    model = build(one, len(COPY.vocabulary)).double()
    loss = train.loss_of(model, one, COPY, batch, Random(0))
    said = log_softmax(model(batch.inputs), -1)
    each = [
        -said[text, place, batch.targets[text, place]]
        for text in range(4)
        for place in range(batch.inputs.shape[1])
        if batch.answers[text, place]
    ]
    torch.testing.assert_close(loss, sum(each) / len(each))


def test_encodings_read_the_same_batches_from_the_same_weights(monkeypatch):
    read = {}
    original = train.loss_of

    def noted(model, cell, task, batch, random):
        read.setdefault(cell.encoding, []).append(batch.inputs)
        return original(model, cell, task, batch, random)

    monkeypatch.setattr(train, "loss_of", noted)
    for encoding in ("nope", "kerple", "learned"):
        steps_of(Cell("copy", encoding, 3, profile=TINY))
    for encoding in ("kerple", "learned"):
        pairs = zip(read["nope"], read[encoding], strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    assert len({batch.numpy().tobytes() for batch in read["nope"]}) == TINY.steps


def test_the_same_cell_trains_to_the_same_bits():
    (one, first), (other, second) = steps_of(cell()), steps_of(cell())
    assert one == other
    weights = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


@pytest.mark.parametrize("encoding", ["nope", "rope", "alibi", "t5", "fox", "sinusoidal"])
def test_products_of_training_may_be_rounded_while_weights_and_tests_are_not(encoding):
    """Against the losses of float32: bfloat16 has 8 bits, so they are equal to about 1 %."""
    plain = replace(cell(), encoding=encoding)
    rounded = replace(plain, precision="bfloat16")
    model = build(rounded, len(COPY.vocabulary))
    maps, products = 7, []  # q, k, v, out, two of the MLP, the head
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and ".encoding." not in name:
            module.register_forward_hook(lambda module, x, y: products.append(y))
    losses, _ = train.fit(model, rounded, COPY)
    assert len(products) == TINY.steps * maps
    assert all(torch.equal(y, y.bfloat16().float()) for y in products)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    products.clear()
    train.evaluate(model, rounded, COPY.at(5, (5, 8)))
    assert not any(torch.equal(y, y.bfloat16().float()) for y in products)
    exact, _ = steps_of(plain)
    assert losses != exact
    assert losses == pytest.approx(exact, rel=0.02)


@pytest.mark.slow
def test_a_rounded_study_ends_as_one_in_float32():
    """Three seeds of each: the means are as near at every length as the seeds' spread allows."""
    small = Profile(width=32, heads=2, steps=300, batch=32, warmup=40, rate=5e-3, prompts=100)
    base = Cell("copy", "rope", 0, profile=small, trained=3, tested=(2, 3, 4))
    shares, losses = {}, {}
    for precision in ("float32", "bfloat16"):
        runs = [train.run(replace(base, seed=n, precision=precision), COPY) for n in (1, 2, 3)]
        outcomes = [[r.outcomes["forced", n].float().mean() for n in base.tested] for r in runs]
        shares[precision] = torch.tensor(outcomes)
        losses[precision] = torch.tensor([r.losses[-1] for r in runs])
    for exact, rounded in (shares.values(), losses.values()):
        # Twice the standard error of a difference of two means, and 0.02 where all seeds agree.
        allowed = 2 * (exact.var(0) / 3 + rounded.var(0) / 3).sqrt() + 0.02
        assert ((exact.mean(0) - rounded.mean(0)).abs() <= allowed).all()
    assert shares["float32"][:, 1].mean() > 0.8  # it has learned to copy


def test_weights_and_data_have_seeds_of_their_own():
    losses, _ = steps_of(cell())
    same_weights, _ = steps_of(cell(), data_seed=7)
    assert losses[0] != same_weights[0]
    again, _ = steps_of(cell(), data_seed=0)
    assert again == losses


@pytest.mark.parametrize("at", range(TINY.steps + 1))
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(at, tmp_path, monkeypatch):
    """Against a run that never stopped, from a stop before each step."""
    whole = train.run(cell(), COPY)
    asked = iter(range(TINY.steps + 1))
    if at < TINY.steps:
        with pytest.raises(train.Stopped):
            train.run(cell(), COPY, tmp_path, stop=lambda: next(asked) == at)
    done, original = [], train.loss_of
    monkeypatch.setattr(train, "loss_of", lambda *a: done.append(1) or original(*a))
    resumed = train.run(cell(), COPY, tmp_path)
    assert len(done) == TINY.steps - (at if at < TINY.steps else 0)
    assert resumed.losses == whole.losses
    assert resumed.outcomes.keys() == whole.outcomes.keys()
    model = build(cell(), len(COPY.vocabulary))
    reference, _ = train.fit(model, cell(), COPY, tmp_path)  # is done: only loads
    _, straight = steps_of(cell())
    assert len(reference) == TINY.steps
    for a, b in zip(model.parameters(), straight.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_loss_that_is_lost_ends_the_run():
    profile = replace(TINY, rate=1e30, warmup=0)
    with pytest.raises(train.Diverged, match="the loss of step"):
        train.run(replace(cell(), profile=profile), COPY)


@pytest.mark.slow
def test_an_easy_task_is_learned():
    """Equal words are easy, so that only the machinery can keep a model from copying them."""
    profile = Profile(width=32, heads=2, layers=1, steps=250, batch=16, rate=5e-3, warmup=10)
    task = tasks.find("copy-constant").at(8, (4, 8))
    outcomes = train.run(Cell(task.name, "nope", 0, profile=profile), task).outcomes
    assert outcomes["endless", 8].float().mean() > 0.95
    assert outcomes["tokens", 8].mean() > 0.85


def test_progress_says_how_far_a_run_is():
    said = []
    train.run(cell(), COPY, progress=said.append)
    assert [(one.step, one.steps, one.left) for one in said] == [(6, 6, 0)]
    assert said[0].speed > 0
    assert math.isfinite(said[0].loss)


def test_theta_is_given_pair_by_pair():
    theta = [1.0, 0.25, 0.0, 0.0]
    made = encoding_of(Cell("copy", "rope", 0, options={"theta": theta}, profile=TINY))
    assert made.freqs.tolist() == theta
    assert made.dim == RoPE(8).dim
    with refused(ValueError, "`theta`", "'alibi'"):
        encoding_of(Cell("copy", "alibi", 0, options={"theta": theta}, profile=TINY))


def test_random_positions_are_in_order_and_below_their_bound():
    one = cell(positions="random 32")
    pos = draw_positions(one, (50, 20), Random(0))
    assert pos.shape == (50, 20)
    assert (pos.diff() > 0).all()
    assert pos.min() >= 0
    assert pos.max() == 31
    assert len({tuple(row) for row in pos.tolist()}) == 50
    with refused(ValueError, 40):
        draw_positions(one, (1, 40), Random(0))


def test_shuffled_positions_are_those_of_the_text():
    pos = draw_positions(cell(control="shuffled"), (9, 6), Random(0))
    assert all(sorted(row) == [*range(6)] for row in pos.tolist())
    assert any(row != sorted(row) for row in pos.tolist())
    assert draw_positions(cell(), (9, 6), Random(0)) is None


def test_a_window_reaches_as_far_as_the_longest_text_of_training():
    batch = COPY.training(4, Random(0))
    mask = mask_of(cell(control="window"), COPY, batch)
    assert COPY.longest == 13  # <bos>, 5 words, <sep>, 5 words, <eos>
    seen, i = mask(*pairs((1, 1, 40, 40))), torch.arange(40)
    assert torch.equal(seen[0, 0], (i.unsqueeze(-1) - i).abs() < 13)
    assert mask_of(cell(), COPY, batch) is None


def test_profiles_differ_in_size_alone():
    assert [*PROFILES] == ["smoke", "cpu", "gpu"]
    assert PROFILES["gpu"].width // PROFILES["gpu"].heads == 32


def test_cells_are_refused_that_say_what_is_not_known():
    with refused(ValueError, "`control`"):
        cell(control="window 3")
    with refused(ValueError, "`positions`"):
        cell(positions="random")


def test_a_run_on_a_named_device_is_the_same_there(tmp_path):
    """Another name of the CPU takes the path of other devices, also for a stop and checkpoints."""
    alone = train.run(cell(), COPY)
    stops = iter([False] * 3 + [True])
    with pytest.raises(train.Stopped):
        train.run(cell(), COPY, tmp_path, lambda: next(stops), device="cpu:0")
    again = train.run(cell(), COPY, tmp_path, device="cpu:0")
    assert again.losses == alone.losses
    assert all(torch.equal(again.outcomes[place], x) for place, x in alone.outcomes.items())


@pytest.mark.parametrize("encoding", ["rope", "sinusoidal", "t5", "shaw", "fire", "fox", "cope"])
@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("copy", {}),
        ("copy", {"positions": "random 100", "control": "window"}),
        ("masked", {"control": "shuffled"}),
    ],
)
def test_all_that_a_step_reads_lies_on_the_device(monkeypatch, encoding, task, changes):
    """On `meta`, which no tensor of the CPU can be added to, and which cannot pick the answers."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    task = tasks.find(task)
    there = replace(cell(**changes), encoding=encoding, task=task.name)
    model = build(there, len(task.vocabulary), task.both_ways).to("meta")
    with pytest.raises(NotImplementedError, match="nonzero"):
        train.loss_of(model, there, task, task.training(4, Random("a")), Random("b"))
