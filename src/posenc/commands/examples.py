"""Examples of each command, as its `--help` shows them, and the answer to an unknown command.

Every example is run by the tests.
"""

from collections.abc import Iterable

from posenc.core import names

EXAMPLES = {
    "": (
        ("posenc show rope", "what it is: formula, measured properties, paper"),
        ("posenc compare --out report/", "all of them on a novel, with a page to look at"),
        ("posenc inspect model/ --target 131072", "what breaks in a model at that length"),
    ),
    "list": (
        ("posenc list", "all of them, by family, the most used first"),
        ("posenc list --json", "with formulas, papers and what holds"),
    ),
    "show": (
        ("posenc show rope", ""),
        ("posenc show examples/own_encoding.py:LogBias", "one of your own, measured"),
        ("posenc show alibi --json", "for a program"),
    ),
    "cite": (("posenc cite rope alibi", ""), ("posenc cite rope > references.bib", "")),
    "compare": (
        ("posenc compare --out report/", "all of them on a novel, with a page to look at"),
        ("posenc compare rope alibi --text mine.txt", "two of them on a text of yours"),
        (
            "posenc compare rope alibi --out report/ --figures svg --width 85",
            "figures as wide as a column of a paper",
        ),
    ),
    "report": (
        ("posenc report rope alibi --out closer/", ""),
        ("posenc report rope --text mine.txt --out closer/ --figures pdf", "figures for a paper"),
    ),
    "inspect": (
        ("posenc inspect model/", "what the layers do, from config.json"),
        ("posenc inspect model/ --target 131072", "what breaks at that length, and what to do"),
        ("posenc inspect model/ --out page/ --figures svg", "a page, and its figures"),
        ("posenc inspect model/ other/", "in what two differ"),
    ),
    "check": (
        ("posenc check model/", "its config, by rules and by its own weights"),
        ("posenc check model/config.json --sarif faults.sarif", "the rules alone, for CI"),
    ),
    "explore": (
        ("posenc explore", "a page that runs the encodings, with sliders"),
        ("posenc explore rope alibi --out mine.html --no-browser", "two of them, to a file"),
    ),
    "extend": (
        ("posenc extend model/ --to 131072 --method yarn", "the old config is kept"),
        ("posenc extend model/ --factor 4 --trained 32768 --method yarn", "Qwen3's recipe"),
    ),
    "convert": (("posenc convert model/ --layout interleaved --out other/", "bit for bit"),),
    "bench": (
        ("posenc bench embeddings --quick", "one part, a few cases"),
        ("posenc bench --out bench/", "everything: half an hour"),
    ),
    "study": (
        ("posenc study --profile smoke --out runs/", "to see that everything runs"),
        ("posenc study plan.toml --workers 8 --out runs/", ""),
        ("posenc study --resume runs/", "to go on after an interruption"),
    ),
    "results": (
        ("posenc results runs/", ""),
        ("posenc results runs/ --task copy --csv outcomes.csv", "every outcome"),
        ("posenc results runs/ --properties", "do measured properties foretell them?"),
    ),
    "arena": (
        ("posenc arena", "what the suite asks for, and how many cells that is"),
        ("posenc arena my_module.py:Mine --workers 8 --out mine/", "again, to go on"),
        ("posenc arena --add mine/ --allow-code my_module.py:Mine", "verified, and on the board"),
    ),
    "doctor": (
        ("posenc doctor", "versions, extras, GPU, and which paths serve"),
        ("posenc doctor --json", "to be sent with a question"),
    ),
    "completion": (
        ("posenc completion bash > ~/.local/share/bash-completion/completions/posenc", ""),
        ("posenc completion zsh > ~/.zfunc/_posenc", "where `fpath` has ~/.zfunc"),
        ("posenc completion fish > ~/.config/fish/completions/posenc.fish", ""),
    ),
    "help": (("posenc help compare", "the same as `posenc compare --help`"),),
}


def examples(command: str) -> str:
    """Write the examples of a command in Markdown, each with what it does above it."""
    lines = [f"# {does}\n{line}" if does else line for line, does in EXAMPLES[command]]
    return "\n".join(["Examples:", "```sh", *lines, "```"])


def unknown(word: str, commands: Iterable[str]) -> str:
    """Say that there is no such command, and what may be meant.

    >>> unknown("rope", ["list", "show"])
    'there is no command `rope`: did you mean `posenc show rope`?'
    """
    # Imported here, since few commands need it
    from difflib import get_close_matches

    message = f"there is no command `{word}`"
    near = get_close_matches(word, [*commands], n=1, cutoff=0.7)
    if near:
        return f"{message}: did you mean `posenc {near[0]}`?"
    try:
        return (
            f"there is no command `{word}`: did you mean `posenc show {names.find(word)['name']}`?"
        )
    except LookupError:
        return f"{message}: `posenc help` names all."
