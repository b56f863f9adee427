"""The state of the page and its address, in node: what is written is read, whatever was there."""

import random
import string

from javascript import evaluate

STATE = ["page/state.js"]
VIEWS = ["story", "encoding", "order", "picture", "rotation", "compare", "context", "tour"]
LETTERS = string.ascii_letters + string.digits + " .,:;/?#&=+%-_'\"ßé…中🙂"


def some_text(random, most=30):
    return "".join(random.choices(LETTERS, k=random.randrange(most)))


def some_state(random):
    count = random.randrange(7)
    return {
        "view": random.choice(VIEWS),
        "names": random.sample(["rope", "alibi", "t5", "Mine 2", "a/b,c"], random.randrange(5)),
        "n": random.randint(2, 128),
        "i": random.randrange(128),
        "j": random.randrange(128),
        "c": random.randrange(64),
        "head": random.randrange(64),
        "axis": random.randrange(8),
        "options": {f"o{n}{some_text(random, 4)}": random.lognormvariate(0, 9) for n in range(3)},
        "text": some_text(random),
        "order": random.sample(range(count), count),
        "patch": random.randrange(64),
        "scene": random.randrange(7),
        "kind": random.randrange(5),
        "guess": random.randrange(1001),
        "seen": random.random() < 0.5,
        "film": random.randrange(101),
        "way": random.randrange(4),
        "causal": random.random() < 0.5,
        "dim": random.randint(2, 1024),
        "channels": random.choice(["", "0,1,10"]),
        "at": random.randrange(513),
        "apart": random.randint(-64, 64),
        "model": some_text(random),
        "wanted": random.randrange(10**9),
        "group": random.randrange(64),
        "having": random.sample(["shift_invariant", "decaying", "x y"], random.randrange(4)),
        "stop": random.randint(1, 15),
        "rows": random.choice(["", "angle", "cos"]),
        "embed": random.random() < 0.5,
        "seeded": random.random() < 0.5,
    }


def test_two_hundred_states_are_read_as_they_were_written():
    states = [some_state(random.Random(seed)) for seed in range(200)]
    again = evaluate(STATE, "(states) => states.map((one) => fromHash(toHash(one)))", states)
    for state, read in zip(states, again, strict=True):
        assert read == state


def test_an_address_says_only_what_differs_and_can_be_read():
    states = evaluate(
        STATE,
        "(patches) => patches.map((patch) => toHash({ ...FIRST, ...patch }))",
        [
            {},
            {"names": ["rope", "alibi"], "view": "compare"},
            {"view": "encoding", "names": ["rope"], "options": {"base": 500000}, "i": 17},
            {"view": "order", "text": "dog bites man", "order": [2, 1, 0]},
        ],
    )
    assert states == [
        "#v1/story",
        "#v1/compare/rope,alibi",
        "#v1/encoding/rope?i=17&option.base=500000",
        "#v1/order?text=dog+bites+man&order=2,1,0",
    ]


def test_an_address_without_sense_is_the_first_state():
    nonsense = ["", "#", "#v2/order/rope", "#v1", "#v1/none", "#v1/story?n=many&i=&order=1,1"]
    nonsense += [
        "#v1/story?rows=sine",
        "#v1/story?model=%E0%A4%A",
        "#v1/story?option.base=x&__proto__=1&constructor=2",
    ]
    first, *read = evaluate(STATE, "(all) => [FIRST, ...all.map(fromHash)]", nonsense)
    assert all(one == first for one in read)


def test_numbers_beyond_their_bounds_are_the_nearest():
    (read,) = evaluate(STATE, "(all) => all.map(fromHash)", ["#v1/tour?n=9999&i=-3&stop=16&at=2.7"])
    assert (read["n"], read["i"], read["stop"], read["at"]) == (128, 0, 15, 2)


def test_what_an_address_says_and_is_not_shown_is_named():
    asked = {
        "": [],
        "#v1/order/rope?n=32&causal&option.base=500000&text=dog+bites+man&order=2,1,0": [],
        "#v2/order": ["“v2/order” (addresses begin with #v1/)"],
        "#v1/none": ["the view “none”"],
        "#v1/encoding?n=9999&wanted=5000000000": [
            "“n=9999” (shown: 128)",
            "“wanted=5000000000” (shown: 1000000000)",
        ],
        "#v1/compare/a,b,c,d,e": ["“e” (4 encodings are the most)"],
        "#v1/tour?colour=red&option.base=x": ["“colour=red”", "“option.base=x”"],
        "#v1/order?order=1,1": ["“order=1,1”"],
        "#v1/order?__proto__=1&view=order": ["“__proto__=1”", "“view=order”"],
    }
    said = evaluate(STATE, "(all) => all.map(misread)", [*asked])
    assert said == [*asked.values()]


def test_embed_may_stand_anywhere():
    read = evaluate(
        STATE, "(all) => all.map(fromHash)", ["#v1/order/rope&embed", "#v1/order?embed"]
    )
    assert [one["embed"] for one in read] == [True, True]
    assert read[0]["names"] == ["rope"]
