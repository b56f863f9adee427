"""A task in which an invented name recurs n letters later, to measure the use of distant text.

    KUVIDE ZAFOLE …, for as long as you like; but KUVIDE …      graded: letters 2 to 6 of the last

Each text begins with two invented names of six letters in random order. One of them replaces a name
of the novel, n letters after its first occurrence. Near the recurrence only the first letter
distinguishes the two, so letters 2 to 6 must be read n letters back. A draft, used by no plan.
"""

import re
from collections.abc import Callable
from random import Random

from posenc.analysis.text import novel_letters
from posenc.lab.study.tasks import Task, TaskText

TEXT = novel_letters().replace("\n", " ")
NAMES = "Catherine|Isabella|Tilney|Thorpe|Morland|Allen|Eleanor|Henry|James|John"
FOUND = [*re.finditer(rf"(?<=[ (\"-])({NAMES})(?=[ ,.;:!?'])", TEXT)]
HELD_OUT = round(len(TEXT) * 0.9)  # number of letters for training; the rest is for tests
INITIALS, VOWELS, CONSONANTS = "KQVXZ", "aeiou", "bcdfghjklmnprstvwz"
FEWEST, AFTER = 200, 7  # letters before the first replaced name, and after the recurrence


def fresh(random: Random, initials: str) -> str:
    """Make a name of six letters that starts with one of the initials."""
    rest = (random.choice(VOWELS if n % 2 == 0 else CONSONANTS) for n in range(5))
    return random.choice(initials) + "".join(rest)


def writer(held_out: bool) -> Callable[[int, Random], TaskText]:
    """Return the function that writes a text with a name that recurs after n letters."""
    first = HELD_OUT + FEWEST if held_out else FEWEST
    last = len(TEXT) if held_out else HELD_OUT
    found = [match for match in FOUND if first <= match.start() and match.end() + AFTER < last]

    def write(n: int, random: Random) -> TaskText:
        name = fresh(random, INITIALS)
        other = fresh(random, INITIALS.replace(name[0], ""))
        pair = [name, other]
        random.shuffle(pair)
        start = " ".join(pair) + " "
        before = n - (len(start) - start.index(name))
        match = random.choice(found)
        while TEXT[match.start() - before - 1] != " ":  # begin with a whole word
            match = random.choice(found)
        start += TEXT[match.start() - before : match.start()]
        text = start + name + TEXT[match.end() : match.end() + AFTER]
        graded = [len(start) < place < len(start) + len(name) for place in range(len(text))]
        return TaskText([*text], graded)

    return write


names = Task(
    "names", writer(False), sorted({*TEXT, *INITIALS}), 64, least=16,
    tested=(16, 32, 48, 64, 80, 96, 112, 128), held_out=writer(True),
)  # fmt: skip
