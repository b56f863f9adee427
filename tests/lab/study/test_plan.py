"""Plans compared with their TOML in several spellings, and invalid plans."""

import os
import re
import tomllib
from datetime import date
from hashlib import sha256
from pathlib import Path

import pytest
from refusals import refused, stating

from posenc.lab.study import execute
from posenc.lab.study.cell import PROFILES, Profile
from posenc.lab.study.plan import Plan, PlanError

SMALL = {"tasks": ["copy"], "encodings": ["nope", "rope"]}
FULL = """
hypothesis = "NoPE copies longer texts than it was trained on; RoPE doesn't — \\"not\\" at all."
tasks = ["copy", "reverse"]
encodings = [
    "nope",
    "rope",
    { name = "slow", encoding = "rope", theta = [1.0, 0, 0, 0, 0, 0, 0, 0.5] },
    { name = "random", encoding = "rope", positions = "random 2048" },
    { name = "window", encoding = "nope", control = "window" },
]
profile = { base = "cpu", steps = 2000, rate = 3e-4 }
metric = "at 1.2"
contrast = [["nope", "rope"], [["nope", "window"], ["rope", "slow"]]]
trained = 10
tested = [10, 12, 20]
seeds = 12
"""


def test_a_plan_says_what_its_file_says(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(FULL)
    plan = Plan.read(path)
    assert plan.labels == ("nope", "rope", "slow", "random", "window")
    assert plan.profile == Profile(layers=4, steps=2000, prompts=500, rate=3e-4)
    assert (plan.seeds, plan.metric) == (12, "at 1.2")
    assert plan.contrast == (
        (("nope",), ("rope",)),
        (("nope", "window"), ("rope", "slow")),
    )
    cells = plan.of_seed(3)
    assert [(cell.task, cell.name) for cell in cells[:2]] == [("copy", "nope"), ("copy", "rope")]
    slow, drawn, window = cells[2:5]
    assert slow.options == {"theta": [1.0, 0, 0, 0, 0, 0, 0, 0.5]}
    assert (drawn.positions, window.control) == ("random 2048", "window")
    assert {(cell.trained, cell.tested, cell.seed) for cell in cells} == {(10, (10, 12, 20), 3)}


def test_its_digest_is_that_of_its_text_which_says_the_same(tmp_path):
    plan = Plan.of(tomllib.loads(FULL))
    again = Plan.of(tomllib.loads(plan.text))
    assert again == plan
    assert again.text == plan.text
    assert plan.digest == sha256(plan.text.encode()).hexdigest()


def test_spellings_of_one_plan_have_one_digest():
    spelled = SMALL | {
        "encodings": [{"name": "nope"}, {"encoding": "rope", "options": {}, "control": ""}],
        "profile": {"steps": PROFILES["smoke"].steps},
        "seeds": 6,
        "metric": "area",
    }
    assert Plan.of(spelled).digest == Plan.of(SMALL).digest
    assert Plan.of(SMALL | {"seeds": 7}).digest != Plan.of(SMALL).digest


def test_a_margin_and_pilots_are_said_and_leave_the_digest_of_others_as_it_was():
    plan = Plan.of(SMALL | {"margin": 0.05, "pilots": ["one seed: 54 %"]})
    assert Plan.of(tomllib.loads(plan.text)) == plan
    assert (plan.margin, plan.pilots) == (0.05, ("one seed: 54 %",))
    assert "margin" not in Plan.of(SMALL).text
    with refused(PlanError, "margin", 0):
        Plan.of(SMALL | {"margin": 0})


def test_a_contrast_may_name_the_cropped_reading_of_a_row():
    plan = Plan.of(SMALL | {"contrast": [["nope", "rope cropped"]]})
    assert plan.contrast == ((("nope",), ("rope cropped",)),)
    assert plan.term("rope cropped") == ("", "rope", "cropped", None)
    assert plan.term("copy: nope at 12") == ("copy", "nope", "", 12)
    with refused(PlanError, "'rope croped'"):
        Plan.of(SMALL | {"contrast": [["nope", "rope croped"]]})


def test_cells_come_seed_after_seed():
    cells = Plan.of(SMALL | {"tasks": ["copy", "sort"], "seeds": 3}).cells()
    assert [cell.seed for cell in cells] == [1] * 4 + [2] * 4 + [3] * 4


def test_options_stand_in_the_table_or_in_options():
    one = Plan.of(SMALL | {"encodings": [{"encoding": "rope", "theta": [0.1] * 8}]})
    other = Plan.of(SMALL | {"encodings": [{"encoding": "rope", "options": {"theta": [0.1] * 8}}]})
    assert one == other


def test_plans_that_differ_say_in_what():
    one, other = Plan.of(SMALL), Plan.of(SMALL | {"seeds": 8, "metric": "at 2"})
    assert other.differences(one) == (
        "`metric` is 'area' there and 'at 2' here, `seeds` is 6 there and 8 here"
    )


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def extended(encoding, by):
    return {"encodings": [{"name": "x", "encoding": encoding, "extend": by}]}


BAD = [
    ({"tasks": []}, "tasks", "list"),
    ({"tasks": ["copi"]}, "tasks", "'copi'", "did you mean copy?"),
    ({"tasks": ["copy", "copy"]}, "tasks", "'copy'"),
    ({"tasks": [3]}, "tasks", 3),
    ({"encodings": ["rop"]}, "encodings", "rop", "rope"),
    ({"encodings": [7]}, "encodings", 7),
    ({"encodings": ["rope", "rope"]}, "encodings", "'rope'", "`name`"),
    ({"encodings": ["rope", {"name": "x", "encoding": "rope"}]}, "encodings", "rope", "x"),
    ({"encodings": ["rope", {"name": "x", "encoding": "RoPE"}]}, "encodings", "rope", "x"),
    ({"encodings": [{"encoding": "rope", "bas": 3}]}, "encodings: rope", "bas"),
    (
        {"encodings": [{"encoding": "rope", "theta": "fast"}]},
        "encodings: rope",
        "`theta`",
        "'fast'",
    ),
    (
        {"encodings": [{"encoding": "rope", "theta": [1.0] * 7 + [float("nan")]}]},
        *("encodings: rope", "`theta`", "nan"),
    ),
    ({"encodings": [{"encoding": "rope", "base": date(2026, 1, 1)}]}, "`base`", "a date"),
    ({"tasks": ["qqq"]}, "'qqq'", "copy", "my_tasks.py:NAME"),
    ({"encodings": [{"encoding": "alibi", "theta": [1]}]}, "encodings: alibi", "`theta`"),
    ({"encodings": [{"encoding": "rope", "positions": "odd"}]}, "positions", '"random 2048"'),
    ({"encodings": [{"name": "rope", "extend": "linear 2"}]}, "extend", '"pi 2"', "'linear 2'"),
    ({"control": "windo"}, "control", "'windo'", "did you mean 'window'"),
    ({"profile": "huge"}, "profile", "'huge'", "smoke, cpu, gpu"),
    ({"profile": {"step": 3}}, "profile", "'step'", "did you mean 'steps'"),
    ({"profile": {"steps": 0}}, "profile: steps", 0),
    ({"profile": {"steps": True}}, "profile: steps", True),
    ({"profile": {"rate": float("nan")}}, "profile: rate", "nan"),
    ({"profile": {"width": 10}}, "profile", "`width`", "`heads`", 10, 4),
    ({"seeds": 0}, "seeds", 0, "10,000"),
    ({"seeds": "6"}, "seeds", "'6'"),
    ({"metric": "mean"}, "metric", '"at 1.2"', "'mean'"),
    ({"contrast": [["nope"]]}, "contrast", '["nope", "rope"]'),
    ({"contrast": [["nope", "alibi"]]}, "contrast", "'alibi'", "nope, rope"),
    ({"contrast": [["nope", ["rope", "nope"]]]}, "contrast", "sides"),
    ({"contrast": [["nope", []]]}, "contrast", "list"),
    ({"trained": 0}, "trained", 0),
    ({"tested": [1.5]}, "tested", "1.5"),
    ({"trained": 10**9}, "trained", "1,048,576", 10**9),
    ({"tested": [10**9]}, "tested", "1,048,576", 10**9),
    ({"profile": {"layers": 10**9}}, "profile: layers", "1,024"),
    (
        {"profile": {"layers": 1024, "width": 2**16}},
        "profile",
        "`width`",
        "`layers`",
        "196,608",
    ),
    ({"encodings": [f"rope{n}" for n in range(3_000)]}, "encodings", "1,000", "3,000"),
    (
        {"seeds": 10_000, "tasks": ["copy", "sort", "mode", "count", "parity", "reverse"]},
        *("seeds", "120,000", "100,000"),
    ),
    ({"encodings": ["nope", {"name": "rope", "o": nested(800)}]}, 16),
    ({"x": nested(5_000)}, 16),
    (extended("alibi", "yarn 2"), "encodings: alibi", "RoPE"),
    (extended("axial-rope", "yarn 2"), "axial-rope", "RoPE"),
    (extended("rope", "yarn 0"), "`extend`", "1,000,000", "'yarn 0'"),
    (extended("rope", "yarn " + "9" * 400), "`extend`", "1,000,000"),
    (extended("rope", "yarn 2 after 99999999999"), "extend", '"pi 2"'),
    ({"positions": "random " + "9" * 5_000}, "positions", '"random 2048"'),
    ({"tested": [8, 12, 12]}, "tested", 12),
    ({"contrast": [["nope", "rope"], ["nope", "rope"]]}, "contrast", "nope and rope"),
    ({"contrast": [["nope", "rope"], ["rope", "nope"]]}, "contrast", "rope and nope"),
    ({"contrast": [[["nope", "nope"], "rope"]]}, "contrast", "'nope'"),
    ({"text": "mine.txt"}, "text", "copy"),
    ({"images": "mine.npz"}, "images", "copy"),
    ({"rate_seeds": 3}, "rate_seeds", "`rates`"),
    ({"encodings": ["rope", {"name": "rope cropped", "encoding": "nope"}]}, "'rope cropped'"),
    ({"hypotesis": "x"}, "'hypotesis'", "did you mean 'hypothesis'"),
    ({"hypothesis": 1}, "hypothesis", 1),
]


@pytest.mark.parametrize(("change", "facts"), [(change, facts) for change, *facts in BAD])
def test_an_invalid_plan_is_rejected_by_file_and_key(unchecked, change, facts):
    with refused(PlanError, *facts) as raised:
        Plan.of(SMALL | change, "mine.toml")
    assert str(raised.value).startswith("mine.toml: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", ["tasks", "encodings"])
def test_tasks_and_encodings_must_be_named(key):
    rest = {name: value for name, value in SMALL.items() if name != key}
    with refused(PlanError, key):
        Plan.of(rest)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"tasks = [", "TOML"),
        (b"\xff", "TOML"),
        (None, "plan.toml"),
        (b"x = " + b"[" * 5_000, 16),
        (b"x = " + b"{a = " * 5_000, 16),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path, content, said):
    path = tmp_path / "plan.toml"
    if content is not None:
        path.write_bytes(content)
    with refused(PlanError, "plan.toml", said):
        Plan.read(path)


def test_a_key_below_the_profile_is_said_to_be_there(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('tasks = ["copy"]\n[profile]\nsteps = 10\nencodings = ["rope"]\n')
    with refused(PlanError, "encodings"):
        Plan.read(path)


def test_a_file_of_an_editor_that_marks_utf_8_is_read(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(FULL, "utf-8-sig")
    assert Plan.read(path) == Plan.of(tomllib.loads(FULL))


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with refused(PlanError, path, "regular file"):
            Plan.read(path)
    with open(tmp_path / "large.toml", "wb") as file:
        file.truncate(2**40)
    with refused(PlanError, "large.toml", "1,048,576"):
        Plan.read(tmp_path / "large.toml")


def test_files_go_to_the_tasks_that_are_made_of_them():
    tasks = ["copy", "language", "masked", "images"]
    plan = Plan.of(
        {"tasks": tasks, "encodings": ["nope"], "text": "a.txt", "images": "b.npz"}, "a plan"
    )
    assert [plan.source(task) for task in tasks] == ["", "a.txt", "a.txt", "b.npz"]
    assert Plan.of(tomllib.loads(plan.text)) == plan


def test_training_may_be_rounded():
    rounded = Plan.of(SMALL | {"precision": "bfloat16"})
    assert {cell.precision for cell in rounded.cells()} == {"bfloat16"}
    assert Plan.of(tomllib.loads(rounded.text)) == rounded
    plain = Plan.of(SMALL)
    assert rounded.digest != plain.digest
    assert Plan.of(SMALL | {"precision": "float32"}).digest == plain.digest
    assert "precision" not in plain.text  # so that earlier plans keep their digest
    with refused(PlanError, "precision", '"float32"', '"bfloat16"', 16):
        Plan.of(SMALL | {"precision": 16})


def test_the_order_of_texts_may_be_one_for_all_seeds():
    fixed = Plan.of(SMALL | {"data_seed": 4})
    assert {cell.data_seed for cell in fixed.cells()} == {4}
    assert Plan.of(tomllib.loads(fixed.text)) == fixed
    assert {cell.data_seed for cell in Plan.of(SMALL).cells()} == {None}
    assert "data_seed" not in Plan.of(SMALL).text  # so that earlier plans keep their digest
    with refused(PlanError, "data_seed", 0):
        Plan.of(SMALL | {"data_seed": -1})


def test_a_thousand_encodings_are_read_at_once_and_two_that_are_the_same_are_named():
    """Compared with each other in pairs they took as many seconds as there are millions of them."""
    rows = [{"name": f"r{n}", "encoding": "rope", "base": 1_000.0 + n} for n in range(1_000)]
    begun = tomllib.loads(Plan.of(SMALL | {"encodings": rows}).text)
    assert len(begun["encodings"]) == 1_000
    rows[999]["base"] = rows[7]["base"]
    with refused(PlanError, "encodings"):
        Plan.of(SMALL | {"encodings": rows})


def test_rates_are_tried_by_seeds_that_no_other_cell_has():
    plan = Plan.of(SMALL | {"rates": [4e-3, 1e-3, 2e-3], "seeds": 3})
    assert Plan.of(tomllib.loads(plan.text)) == plan
    trials = plan.trials()
    assert len(trials) == 2 * 3 * 2
    assert {cell.profile.rate for cell in trials} == {1e-3, 2e-3, 4e-3}
    assert not {cell.seed for cell in trials} & {cell.seed for cell in plan.cells()}
    chosen = plan.of_seed(1, {("copy", "rope"): 4e-3})
    assert [cell.profile.rate for cell in chosen] == [1e-3, 4e-3]
    assert "rates" not in Plan.of(SMALL).text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rates": [1e-3, 2e-3]}, ["rates"]),
        ({"rates": [1e-3, 2e-3, 2e-3]}, ["rates"]),
        ({"rates": [1e-3, 2e-3, 0]}, ["rates", 0]),
        (
            {"rates": [1e-3, 2e-3, 3e-3], "profile": {"rate": 2e-3}},
            ["rates", "`rate`"],
        ),
        ({"told": 1}, ["told", 1]),
    ],
)
def test_rates_that_cannot_be_chosen_from_are_refused(change, said):
    with refused(PlanError, *said):
        Plan.of(SMALL | change)


def test_a_plan_from_before_encodings_were_told_reads_as_it_was():
    earlier = Plan.of(SMALL | {"told": False})
    assert "told" not in earlier.text
    assert Plan.stored(earlier.text) == earlier
    assert Plan.stored(Plan.of(SMALL).text) == Plan.of(SMALL)
    assert Plan.of(SMALL).of_seed(1)[0].told


ROPES = [
    "nope",
    "rope",
    {"name": "slow", "encoding": "rope", "profile": {"rate": 2e-4}},
    {"name": "taught", "encoding": "rope", "trained": 20},
]
EVIDENCE = {
    "tasks": ["copy-unique", "copy-repeat"],
    "encodings": ROPES,
    "trained": 10,
    "tested": [10, 12, 20],
    "seeds": 7,
    "contrast": [
        ["copy-unique: rope at 12", "copy-unique: rope at 20"],
        ["copy-unique: rope", "copy-unique: nope", "copy-repeat: rope", "copy-repeat: nope"],
    ],
    "positive": "taught",
    "negative": "rope cropped",
    "withdraw": "RoPE copies fewer than half of the texts of 12 words.",
}


def test_a_plan_with_controls_two_rates_and_enough_seeds_is_evidence():
    Plan.of(EVIDENCE).check_evidence()
    assert Plan.of(EVIDENCE).notes() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"positive": ""}, ["positive", 'Write `positive = "…"`']),
        ({"negative": ""}, ["negative", 'Write `negative = "…"`']),
        ({"withdraw": ""}, ["withdraw", 'Write `withdraw = "…"`']),
        ({"encodings": [ROPES[0], ROPES[1], ROPES[3]]}, ["encodings", "rate"]),
        # Two contrasts need p = 0.05 / 2 of one, and 2 / 2⁶ is more
        ({"seeds": 6}, ["seeds", 2, 7, 6]),
        ({"profile": {"steps": 100}}, ["profile", "`steps`", "`warmup`", 100]),
    ],
)
def test_a_plan_that_cannot_be_evidence_is_rejected_with_each_reason(tmp_path, changes, said):
    """Checks that nothing is written, and that `notes` has the same facts for a pilot."""
    plan = Plan.of(EVIDENCE | changes)
    with refused(PlanError, *said) as caught:
        execute.study(plan, tmp_path / "out")
    assert "--pilot" in str(caught.value)
    assert not (tmp_path / "out").exists()
    (note,) = plan.notes()
    assert re.search(stating(*said), note)


def test_a_second_size_serves_as_a_second_rate():
    wide = {"name": "wide", "encoding": "rope", "profile": {"width": 128}}
    Plan.of(EVIDENCE | {"encodings": [*ROPES[:2], wide, ROPES[3]]}).check_evidence()


def test_rows_may_be_trained_otherwise_and_are_tested_alike():
    """Each row against what the plan writes of it."""
    plan = Plan.of(EVIDENCE)
    rows = {cell.name: cell for cell in plan.of_seed(1) if cell.task == "copy-unique"}
    assert {name: cell.profile.rate for name, cell in rows.items()} == {
        "nope": 1e-3, "rope": 1e-3, "slow": 2e-4, "taught": 1e-3,
    }  # fmt: skip
    resolved = {(cell.task, cell.name): cell for cell in execute.resolved(plan) if cell.seed == 1}
    taught, rope = (resolved["copy-unique", name] for name in ("taught", "rope"))
    assert (taught.trained, taught.tested, rope.trained) == (20, (10, 12, 20), 10)
    # <bos>, the words, <sep>, the words again, <eos>
    assert (taught.told, rope.told) == (2 * 20 + 3, 2 * 10 + 3)
    assert Plan.stored(plan.text).text == plan.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"positive": "tought"}, ["positive", "'tought'", "'taught'"]),
        ({"negative": "taught"}, ["positive", "'taught'"]),
        ({"trained": None}, ["trained"]),
        ({"rates": [1e-3, 2e-3, 3e-3]}, ["rates", "`rate`"]),
        (
            {"contrast": [["copy-unique: rope", "nope"]]},
            ["contrast"],
        ),
        ({"contrast": [["rope", "nope", "slow"]]}, ["contrast"]),
    ],
)
def test_controls_and_terms_that_cannot_be_read_are_rejected(changes, said):
    content = {name: x for name, x in (EVIDENCE | changes).items() if x is not None}
    with refused(PlanError, *said):
        Plan.of(content)


def test_a_term_is_at_a_tested_length():
    plan = Plan.of(EVIDENCE | {"contrast": [["rope at 12", "rope at 13"]]})
    with refused(PlanError, "contrast", "'rope at 13'", 13):
        execute.resolved(plan)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"margin": 1.0}, ["margin", 1]),
        ({"profile": {"rate": 1000.0}}, ["rate", 1, 1000]),
        ({"rates": [1e-3, 2e-3, 2.0]}, ["rate", 1, 2]),
        (
            {"encodings": ["nope", {"name": "two", "encoding": "RoPE", "theta": [1.0, 0.1]}]},
            ["encodings", "`theta`", 8, 2, 0],
        ),
    ],
)
def test_what_cannot_be_meant_is_rejected_before_training_and_read_all_the_same(
    tmp_path, changes, said
):
    """Stores of earlier versions have such plans; nothing is trained by one anew."""
    content = {"tasks": ["copy"], "encodings": ["nope", "rope"]} | changes
    plan = Plan.of(content)
    assert Plan.stored(plan.text).digest == plan.digest
    with refused(PlanError, *said) as caught:
        execute.study(plan, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_margin_of_bits_may_be_above_one():
    plan = Plan.of({"tasks": ["language"], "encodings": ["nope", "rope"], "margin": 1.5})
    assert execute.resolved(plan)
