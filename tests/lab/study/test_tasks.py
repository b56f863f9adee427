"""Texts against what they must mean: each is parsed again and its answer worked out by hand."""

import io
import itertools
import lzma
import re
from dataclasses import replace
from importlib.resources import files
from random import Random
from zipfile import ZIP_DEFLATED, ZipFile

import numpy
import pytest
import torch
from refusals import refused

from posenc.lab.study import tasks
from posenc.lab.study.tasks import (
    BEGIN,
    END,
    SEPARATOR,
    TASKS,
    Task,
    TaskText,
    language,
    masked,
    passkey,
)

NOVEL = lzma.decompress(
    (files("posenc.analysis") / "northanger_abbey.txt.xz").read_bytes()
).decode()
SIZES = (1, 2, 3, 7, 20)


def parts(task, n, seed=0):
    """The symbols before and after the place where the answer begins."""
    text = task.text(n, Random(seed))
    first = text.graded.index(True)
    assert text.symbols[0] == BEGIN
    assert all(text.graded[first:])
    assert text.symbols[-1] == END
    return text.symbols[1:first], text.symbols[first:-1]


def value(digits):
    return sum(int(digit) * 10**place for place, digit in enumerate(digits))


ANSWERS = {
    "copy": lambda words: words,
    "copy-constant": lambda words: words,
    "reverse": lambda words: [*reversed(words)],
    "sort": lambda words: [f"{n:02}" for n in sorted(map(int, words))],
    "mode": lambda words: [max(words, key=words.count)],
    "parity": lambda words: [str(sum(map(int, words)) % 2)],
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_follows_from_the_prompt(name, n):
    for seed in range(20):
        prompt, answer = parts(TASKS[name], n, seed)
        assert prompt[-1] == SEPARATOR
        assert len(prompt) == n + 1
        assert answer == ANSWERS[name](prompt[:-1])


def test_the_mode_is_the_only_one():
    for seed in range(200):
        prompt, (most,) = parts(TASKS["mode"], 6, seed)
        times = [prompt.count(symbol) for symbol in {*prompt[:-1]}]
        assert times.count(prompt.count(most)) == 1


def test_counting_goes_from_the_first_to_the_last_on_a_circle():
    wrapped = 0
    for seed in range(50):
        (first, last, _), answer = parts(TASKS["count"], 9, seed)
        steps = [int(word[1:]) for word in answer]
        assert (answer[0], answer[-1], len(answer)) == (first, last, 9)
        assert {(b - a) % 100 for a, b in itertools.pairwise(steps)} == {1}
        wrapped += steps[-1] < steps[0]
    assert wrapped


@pytest.mark.parametrize("n", [1, 2, 9])
def test_sums_are_right_with_the_last_digit_first(n):
    for seed in range(50):
        prompt, answer = parts(TASKS["addition"], n, seed)
        one, other = "".join(prompt).removesuffix("=").split("+")
        assert len(one) == len(other) == n
        assert len(answer) == n + 1
        assert value(one) + value(other) == value(answer)


@pytest.mark.parametrize("n", [1, 5, 40, 126])
def test_hints_name_the_power_of_ten_of_each_digit(n):
    starts = set()
    for seed in range(20):
        prompt, answer = parts(TASKS["hinted-addition"], n, seed)
        plus = prompt.index("+")
        numbers = [prompt[:plus], prompt[plus + 1 : -1], answer]
        start = int(prompt[0][1:])
        starts.add(start)
        for written in numbers:
            assert [int(hint[1:]) - start for hint in written[::2]] == [*range(len(written) // 2)]
        one, other, total = (value(written[1::2]) for written in numbers)
        assert one + other == total
    assert len(starts) > 1


def test_more_digits_than_hints_are_refused():
    with refused(ValueError, "`n`", 128):
        TASKS["hinted-addition"].text(128, Random(0))


@pytest.mark.parametrize("n", [0, 1, 30])
def test_each_key_asked_for_is_answered_with_the_value_it_came_with(n):
    text = replace(TASKS["recall"], least=0).text(n, Random(n))
    middle = text.symbols.index(SEPARATOR)
    said, asked = text.symbols[1:middle], text.symbols[middle + 1 :]
    pairs = dict(zip(said[:12:2], said[1:12:2], strict=True))
    assert len(pairs) == 6
    assert len(said) == 12 + n
    assert dict(zip(asked[::2], asked[1::2], strict=True)) == pairs
    graded = [place for place, answer in enumerate(text.graded) if answer]
    assert graded == [*range(middle + 2, len(text.symbols), 2)]


@pytest.mark.parametrize("n", [0, 1, 2, 30])
def test_the_listed_variables_are_those_with_the_value(n):
    """Against an interpreter of the assignments, which are found by their "="."""
    for seed in range(50):
        text = TASKS["variables"].write(n, Random(seed))
        middle = text.symbols.index(SEPARATOR)
        read, (value, *listed) = text.symbols[:middle], text.symbols[middle + 1 :]
        held = {}
        for place in (place for place, symbol in enumerate(read) if symbol == "="):
            source = read[place + 1]
            held[read[place - 1]] = held.get(source, source)
        assert listed == [name for name, of in held.items() if of == value]
        assert (len(held), len({*held.values()}), len(listed)) == (6, 2, 3)
        assert [symbol[0] for symbol in read[:6]] == ["k", "=", "v"] * 2
        assert sum(symbol[0] == "w" for symbol in read) == n
        assert text.graded == [place > middle + 1 for place in range(len(text.symbols))]


def test_models_of_both_kinds_of_texts_are_trained_alike_and_tested_apart():
    one, other = tasks.find("both-unique"), tasks.find("both-repeat")
    assert one.name == other.name  # the training texts are drawn from this name
    assert torch.equal(one.training(40, Random(3)).inputs, other.training(40, Random(3)).inputs)
    unique = repeat = 0
    for seed in range(60):
        words = one.text(9, Random(seed)).symbols[1:10]
        unique += len({*words}) == 9
        repeat += len({*words}) <= 5
        assert len({*one.text(9, Random(seed), held_out=True).symbols[1:10]}) == 9
        assert len({*other.text(9, Random(seed), held_out=True).symbols[1:10]}) <= 5
    assert unique + repeat == 60
    assert 15 < unique < 45


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("n", [16, 40, 64, 128])
def test_the_graded_letters_of_a_name_are_those_n_letters_before(n, held_out):
    task = tasks.find("names")
    for seed in range(30):
        letters, graded = task.text(n, Random(seed), held_out)[:2]
        assert graded == [place >= len(letters) - 5 for place in range(len(letters))]
        assert letters[-6 - n : -n] == letters[-6:]
        assert letters[-6].isupper()


def test_two_names_differ_in_their_initial_and_either_recurs():
    firsts, task = set(), tasks.find("names")
    for seed in range(50):
        text = "".join(task.text(40, Random(seed)).symbols[1:])
        one, other, name = text[:6], text[7:13], text[-6:]
        assert one[0] != other[0]
        assert name in (one, other)
        firsts.add(name == one)
    assert firsts == {True, False}


def test_names_of_tests_recur_in_the_last_tenth_of_the_novel():
    novel, task = re.sub(r"\s+", " ", NOVEL), tasks.find("names")
    cut = round(len(novel) * 0.9)
    for seed in range(20):
        trained = "".join(task.text(64, Random(seed)).symbols)[len(BEGIN) + 14 : -6]
        tested = "".join(task.text(64, Random(seed), held_out=True).symbols)[len(BEGIN) + 14 : -6]
        assert trained in novel[:cut]
        assert tested in novel[cut:]


def test_a_cropped_text_has_nothing_of_the_name_that_recurs():
    """At all tested lengths beyond L, so that a cropped model is a negative control."""
    task = tasks.find("names")
    for n in task.lengths:
        for seed in range(20):
            letters = task.text(n, Random(seed), held_out=True).symbols
            last_before = len(letters) - 1 - n
            kept = range(len(letters) - task.longest, len(letters))
            assert (last_before in kept) == (n <= task.trained)


@pytest.mark.parametrize(("text", "n"), [("the Morland. " * 20, 300), ("the Morland. " * 20, 13)])
def test_a_distance_that_no_name_has_is_refused(text, n):
    task = tasks.names(text, 16, held=0.5)
    with refused(ValueError, "`n`", n):
        task.write(n, Random(0))


def test_a_flip_flop_reads_what_was_written_last():
    orders = []
    for seed in range(40):
        text = TASKS["flip-flop"].text(40, Random(seed))
        memory = None
        steps = zip(text.symbols[1::2], text.symbols[2::2], text.graded[2::2], strict=True)
        for order, bit, graded in steps:
            orders.append(order)
            assert graded == (order == "read")
            if order == "write":
                memory = bit
            if order == "read":
                assert bit == memory
        assert (text.symbols[1], text.symbols[-2]) == ("write", "read")
    assert 0.7 < orders.count("ignore") / len(orders) < 0.85


def test_a_window_of_a_language_stands_in_the_text_and_held_out_ones_only_at_its_end():
    text = NOVEL[:40_000]
    task = language(text, trained=32)
    for held_out in (False, True):
        for seed in range(20):
            written = task.text(100, Random(seed), held_out)
            window = "".join(written.symbols[1:])
            assert written.graded == [False] + [True] * 100
            assert window in (text[36_000:] if held_out else text[:36_000])


def test_a_pass_key_is_planted_once_and_asked_for():
    text = NOVEL[:30_000]
    task = passkey(text, trained=128)
    places = set()
    for seed in range(20):
        prompt, answer = parts(task, 200, seed)
        said = "".join(prompt)
        assert len(said) == 200
        assert said.endswith("The pass key?")
        assert re.findall(r"The pass key is (\d{5})\.", said) == ["".join(answer)]
        places.add(said.index("The pass key is"))
    assert len(places) > 10
    assert max(places) > 100 > 40 > min(places)


FORWARD = [task for task in TASKS.values() if not task.both_ways]


def decoded(task, tokens):
    return [task.vocabulary[n] for n in tokens if n]


@pytest.mark.parametrize("task", FORWARD, ids=lambda task: task.name)
def test_batches_hold_the_texts_and_grade_no_filling(task):
    sizes = [3, 9, 5]
    batch = task.batch(sizes, Random(3))
    random = Random(3)
    for row, n in enumerate(sizes):
        text = task.text(n, random)
        tokens = [*batch.inputs[row, :1].tolist(), *batch.targets[row].tolist()]
        assert decoded(task, tokens) == text.symbols
        assert batch.lengths[row] == len(text.symbols)
        right = [s for s, graded in zip(text.symbols, text.graded, strict=True) if graded]
        assert decoded(task, batch.targets[row][batch.answers[row]].tolist()) == right
    assert not batch.answers[batch.targets == 0].any()
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])


def test_words_to_copy_are_unique_or_repeated():
    for n in (1, 2, 7, 60):
        words, _ = TASKS["copy-unique"].write(n, Random(n))
        assert len({*words}) == n + 1
        words, answer = TASKS["copy-repeat"].write(n, Random(n))
        assert (words[:-1], len({*answer}) <= -(-n // 2)) == (answer, True)
    with refused(ValueError, 100, 101):
        TASKS["copy-unique"].write(101, Random(0))
    words, _ = TASKS["copy-unique-4096"].write(4_096, Random(0))
    assert len({*words}) == 4_097


def test_the_same_seed_writes_the_same_texts():
    one, other, third = (TASKS["copy"].training(8, Random(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.inputs, other.inputs)
    assert one.lengths != third.lengths


def test_lengths_of_training_are_drawn_alike_and_those_of_evaluation_go_twice_as_far():
    task = TASKS["copy"]
    lengths = [length - 1 for length in task.training(4000, Random(0)).lengths]
    sizes = [(length - 2) // 2 for length in lengths]
    assert {*sizes} == {*range(1, 21)}
    assert max(map(sizes.count, sizes)) < 1.5 * 4000 / 20
    assert task.lengths == (4, 8, 12, 16, *range(20, 41))  # every one beyond L


def test_a_task_of_ones_own_is_one_function():
    def double(n, random):
        digits = [random.choice("0123456789") for _ in range(n)]
        return [*digits, "="], [*digits, *digits]

    task = Task("double", double, symbols="0123456789=")
    prompt, answer = parts(task, 4)
    assert answer == prompt[:-1] * 2
    assert len(task.vocabulary) == 15


def test_what_a_task_writes_beyond_its_symbols_is_refused_by_name():
    task = Task("odd", lambda n, random: (["a"], ["b"]), symbols="a")
    with refused(ValueError, "'odd'", "'b'", "`symbols`"):
        task.batch([1], Random(0))


def test_symbols_that_are_there_twice_are_refused():
    with refused(ValueError, "`symbols`", "'odd'", "'a'"):
        Task("odd", lambda n, random: TaskText([], []), symbols="aba")


def test_texts_too_short_for_the_longest_window_are_refused():
    with refused(ValueError, "`text`", "5,120", 100):
        language("ab" * 50)
    with refused(ValueError, 37):
        passkey("ab" * 50)
    with refused(ValueError, "`held`", 0, 1):
        language("ab" * 50, held=1)


def test_a_text_of_the_longest_window_is_the_whole_of_what_it_is_taken_from():
    whole = language(NOVEL[:30_000]).text(3_000, Random(5), held_out=True)
    assert "".join(whole.symbols[1:]) == NOVEL[27_000:30_000]


@pytest.mark.parametrize(
    ("task", "n", "said"),
    [
        (language(NOVEL[:30_000]), 3_001, ["3,000", 0]),
        (masked(["a"] * 5_000), 501, [500, 0]),
        (passkey("ab" * 5_000), 10_038, ["10,000", "10,001"]),
        (passkey("ab" * 5_000).at(20), 20, [37, 20]),
        (TASKS["addition"], 4_001, ["4,000", 4001]),
    ],
)  # fmt: skip
def test_a_length_that_cannot_be_written_is_refused(task, n, said):
    with refused(ValueError, *said):
        task.text(n, Random(0), held_out=True)


def test_every_length_of_a_task_is_tried_and_in_the_part_that_is_held_out():
    for task in TASKS.values():
        task.most_tokens()
    ends = replace(TASKS["copy-unique"], trained=50, tested=(50, 60, 101))
    with refused(ValueError, 100, 101):
        ends.most_tokens()
    replace(ends, held_out=TASKS["copy"].write).most_tokens()
    with refused(ValueError, 100, 101):
        replace(ends, held_out=TASKS["copy"].write, trained=101).most_tokens()
    odd = Task("odd", lambda n, random: (["a"], ["a" if n < 9 else "b"]), "a", tested=(5, 9))
    with refused(ValueError, "'b'", "`symbols`"):
        replace(odd, trained=5).most_tokens()


def test_a_length_below_the_least_is_refused():
    with refused(ValueError, "`n`", 2, 1):
        TASKS["flip-flop"].text(1, Random(0))


def test_hidden_words_are_hidden_and_asked_for():
    words = [f"v{n % 50}" for n in range(5_000)] + ["new"] * 600
    task = masked(words, trained=40, most=50)
    for held_out in (False, True):
        text = task.text(40, Random(1), held_out)
        hidden = [place for place, symbol in enumerate(text.symbols) if symbol == "<mask>"]
        assert hidden == [place for place, answer in enumerate(text.graded) if answer]
        assert len(hidden) == 6  # 15 % of 40
        assert text.targets[0] == BEGIN
        assert "<mask>" not in text.targets
        same = zip(text.symbols, text.targets, text.graded, strict=True)
        assert all(answer or shown == said for shown, said, answer in same)
    assert "new" in task.vocabulary  # the commonest word
    assert "v49" not in task.vocabulary
    with refused(ValueError, "`text`", 500):
        masked(words[:500], trained=40)


def test_sentences_ask_for_their_label_at_the_beginning(tmp_path):
    lines = [
        f"{'yes' if n % 2 else 'no'}\t{'good ' * (n % 2)}word {'x ' * (n % 25)}"
        for n in range(9_000)
    ]
    file = tmp_path / "labelled.tsv"
    file.write_text("\n".join(lines))
    task = tasks.load_sentences(file).at(6, (6, 12))
    text = task.text(6, Random(0))
    assert text.symbols[0] == BEGIN
    assert text.graded == [True, *[False] * 6]
    assert text.targets[0] == ("=yes" if "good" in text.symbols else "=no")
    assert text.targets[1:] == text.symbols[1:]
    (tmp_path / "bad.tsv").write_text("one part")
    with refused(ValueError, 1):
        tasks.load_sentences(tmp_path / "bad.tsv")
    with pytest.raises(ValueError, match="cannot be read"):
        tasks.load_sentences(tmp_path / "none.tsv")


def test_every_tenth_picture_is_held_out():
    """Each picture has a label of its own."""
    labels = [str(n) for n in range(40)]
    task = tasks.images(torch.rand(40, 2, 2), labels)
    for held in (True, False):
        drawn = {task.text(2, Random(seed), held).targets[0] for seed in range(400)}
        assert drawn == {f"={n}" for n in range(40) if (n % 10 == 0) is held}


@pytest.mark.parametrize("n", [8, 12, 16])
@pytest.mark.parametrize("name", ["marks-offset", "marks-order"])
def test_the_class_of_two_marks_follows_from_the_points_of_their_patches(name, n):
    """By the points that an encoding of two axes receives; every class is drawn."""
    task, drawn = TASKS[name], []
    points = task.batch([n], Random(0)).points.tolist()
    for seed in range(400):
        text = task.text(n, Random(seed))
        assert len(text.symbols) == len(points) == 1 + n * n
        assert text.graded == [True, *[False] * n * n]
        (red,), (blue,) = (
            [point for point, symbol in zip(points, text.symbols, strict=True) if symbol == mark]
            for mark in ("red", "blue")
        )
        assert text.symbols.count("empty") == n * n - 2
        down, across = (b - r for r, b in zip(red, blue, strict=True))
        if name == "marks-offset":
            assert max(abs(down), abs(across)) <= 3
            answer = f"={across}"
        else:
            assert down * across
            answer = f"={'below' if down > 0 else 'above'} {'right' if across > 0 else 'left'}"
        assert text.targets[0] == answer
        drawn.append((answer, abs(across)))
    answers = {answer for answer, _ in drawn}
    assert answers == {symbol for symbol in task.symbols if symbol.startswith("=")}
    if name == "marks-order":
        assert {far for _, far in drawn} == {*range(1, n)}


def test_larger_pictures_are_trained_at_one_size_and_tested_at_smaller_ones_too():
    task = TASKS["marks-order"].at(8, (8, 12)).at(12, (8, 12))
    assert task.lengths == (8, 12)
    assert task.training(3, Random(0)).inputs.shape == (3, 1 + 12 * 12)


def test_pictures_are_read_row_by_row_and_scaled_by_the_nearest_pixel(tmp_path):
    pictures = torch.arange(16.0).reshape(1, 4, 4).repeat(20, 1, 1)
    task = tasks.images(pictures, ["cat", "dog"] * 10, levels=16)
    text = task.text(4, Random(0))
    assert text.symbols[1:] == [f"grey{n}" for n in range(16)]
    assert text.targets[0] in ("=cat", "=dog")
    twice = task.text(8, Random(0)).symbols[1:]
    for row, column in itertools.product(range(8), repeat=2):
        assert twice[8 * row + column] == f"grey{4 * (row // 2) + column // 2}"
    numpy = pytest.importorskip("numpy")
    numpy.savez(tmp_path / "some.npz", pictures=pictures.numpy(), labels=[0, 1] * 10)
    assert tasks.find("images", tmp_path / "some.npz").tested == (4, 5, 6, 8)
    (tmp_path / "bad.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"must be an .npz file with arrays"):
        tasks.load_images(tmp_path / "bad.npz")
    with refused(ValueError, "`pictures`"):
        tasks.images(torch.zeros(3, 4, 5), [1, 2, 3])


def test_tasks_are_found_by_name_and_with_their_file(tmp_path):
    (tmp_path / "letters.txt").write_text("".join(Random(0).choices("abc", k=20_000)))
    assert tasks.find("language", tmp_path / "letters.txt").symbols == ["a", "b", "c"]
    assert "t" in tasks.find("passkey").symbols
    own = tmp_path / "mine.py"
    own.write_text(
        "from posenc.lab.study.tasks import Task, copy, WORDS\n"
        "double = Task('double', copy, WORDS)\nnothing = 3\n"
    )
    assert tasks.find(f"{own}:double").name == "double"
    with refused(LookupError, "`posenc.lab.study.tasks.Task`", 3):
        tasks.find(f"{own}:nothing")
    with pytest.raises(LookupError, match="did you mean reverse"):
        tasks.find("revers")
    with refused(LookupError, "'sentences'", "`--text FILE`"):
        tasks.find("sentences")


def test_another_length_keeps_what_a_task_is():
    task = tasks.find("language").at(32)
    assert (task.least, task.trained, task.tested) == (32, 32, (32, 40, 48, 64, 128, 256))
    longer = tasks.find("language").at(128, (64, 128))  # a row trained on 2 L, tested from L on
    assert (longer.least, longer.trained, longer.tested) == (64, 128, (64, 128))
    assert tasks.find("copy").at(10).lengths == (2, 4, 6, 8, *range(10, 21))
    assert tasks.find("copy").at(10, (12,)).lengths == (12,)
    assert tasks.find("copy").at(250).lengths == (50, 100, 150, 200, 250, *range(251, 501, 3))
    assert min(tasks.find("flip-flop").at(2).lengths) == 2  # a write and a read
    assert tasks.find("copy").at() == tasks.find("copy")


def packed(path, **arrays):
    """An .npz file of arrays, or of the bytes of their files."""
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for name, content in arrays.items():
            data = io.BytesIO()
            if not isinstance(content, bytes):
                numpy.save(data, content)
            file.writestr(f"{name}.npy", data.getvalue() or content)


def header(shape, dtype="|u1"):
    data = io.BytesIO()
    about = {"shape": shape, "fortran_order": False, "descr": dtype}
    numpy.lib.format.write_array_header_1_0(data, about)
    return data.getvalue()


def test_pictures_that_unpack_to_more_than_memory_are_refused_before_they_do(tmp_path, monkeypatch):
    """By the directory of the archive and by the headers of the arrays: nothing is unpacked."""
    path, labels = tmp_path / "bomb.npz", numpy.arange(20) % 2
    packed(path, pictures=numpy.zeros((20, 100, 100), numpy.uint8), labels=labels)
    assert path.stat().st_size < 2_000
    assert tasks.load_images(path).trained == 100
    monkeypatch.setattr(tasks, "MOST_BYTES", 200_000)
    monkeypatch.setattr(numpy, "load", lambda *_, **__: 1 / 0)
    with refused(ValueError, "pictures.npy", "200,128", "200,000"):
        tasks.load_images(path)
    for content in (header((10**6, 10**4, 10**4)), header((20, 8, 8)), header((-1, 8, 8)), b"x"):
        packed(path, pictures=content, labels=labels)
        with pytest.raises(ValueError, match=r"must be an \.npz file with arrays"):
            tasks.load_images(path)
    packed(path, labels=labels)
    with pytest.raises(ValueError, match=r"must be an \.npz file with arrays"):
        tasks.load_images(path)


def test_a_damaged_archive_of_pictures_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "some.npz"
    packed(path, pictures=numpy.arange(1280.0).reshape(20, 8, 8), labels=numpy.arange(20) % 2)
    data, draw, refused = path.read_bytes(), Random(1), 0
    for _ in range(200):
        place = draw.randrange(len(data))
        path.write_bytes(data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :])
        try:
            tasks.load_images(path)
        except ValueError:
            refused += 1
    assert refused > 100
