"""The function `explore`, which makes the explorer's page for encodings and models."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from posenc.catalog import choose, find
from posenc.core.encoding import Encoding
from posenc.models.files import hub
from posenc.properties.card import Card
from posenc.show.explorer import data, graphs, models, vectors
from posenc.show.explorer.document import Explorer
from posenc.support.arguments import brief


def explore(*what: Encoding | str | Path | Card, study: str | Path | None = None) -> Explorer:
    """Make the explorer's page with these encodings and models. A notebook displays it.

    - `what`: encodings and models, one argument each. An encoding is a name of the catalogue,
      "my_module.py:Mine", which runs that code, or an instance. A model is a folder, a config.json,
      or an id of the Hugging Face hub; the first folder with a tokenizer.json and weights gives
      words their vectors
    - `study`: folder with the results of a study to show, or None

    Raises LookupError for unknown encodings, and ModelError for models that cannot be read.

    >>> explore("rope")
    Explorer(... encodings, ... models, ...): a notebook shows it, and save(...) writes it
    """
    return explorer(*sorted_out(what), study)


def explorer(
    cards: Sequence[Card],
    paths: Sequence[Path],
    study: str | Path | None = None,
    whole: bool = True,
) -> Explorer:
    """Make the explorer's page from `Card` objects of encodings and paths of model files.

    - `whole`: False to accept an incomplete page, as in `data.page`
    """
    study_results = None if study is None else results(study)
    described = [models.model(path) for path in paths]
    names = {path: model["name"] for path, (model, _) in zip(paths, described, strict=True)}
    speaking = next((path for path in paths if vectors.has_words(path)), None)
    spoken = speaking and vectors.vectors(speaking, names[speaking], graphs.DIM * graphs.HEADS)
    return Explorer(data.page(cards, described, study_results, spoken, whole))


def sorted_out(what: Iterable[Any]) -> tuple[list[Card], list[Path]]:
    """Split the arguments of `explore` into `Card` objects of encodings and paths of models."""
    cards, paths = [], []
    for item in what:
        if not isinstance(item, Encoding | Card | str | Path):
            raise TypeError(
                "`what` must be encodings, their names, or models' files, got"
                f" {brief(item)}. Call explore('rope', 'config.json'), for example."
            )
        if isinstance(item, Path) or (isinstance(item, str) and hub.is_model(item)):
            paths.append(hub.local(str(item)))
        else:
            cards.append(find(item))
    return choose(cards), paths


def results(folder: str | Path) -> dict[str, Any]:
    """Return the results of a study in the form that `posenc results --json` prints."""
    from posenc.lab.study import analysis, store

    return analysis.analyse(store.read(Path(folder))).to_json()
