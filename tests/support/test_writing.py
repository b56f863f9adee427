"""Files and folders that are written beside their place, against what lies in the folder after."""

import os

import pytest

from posenc.support.writing import write_whole, written_beside


def contents(folder):
    """Read every file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def unfinished(path):
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def test_a_file_is_there_only_at_the_end(tmp_path):
    with written_beside(tmp_path / "a") as part:
        part.write_text("new")
        assert not (tmp_path / "a").exists()
    assert contents(tmp_path) == {"a": "new"}


def test_a_folder_takes_the_place_of_an_empty_one(tmp_path):
    (tmp_path / "a").mkdir()
    with written_beside(tmp_path / "a") as part:
        part.mkdir()
        (part / "b").write_text("new")
    assert contents(tmp_path) == {"a/b": "new"}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("folder", [False, True])
def test_what_fails_leaves_everything_as_it_was(tmp_path, folder, replace):
    (tmp_path / "a").write_text("old")

    def interrupted():
        with written_beside(tmp_path / "a", replace) as part:
            if folder:
                part.mkdir()
            (part / "b" if folder else part).write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert contents(tmp_path) == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("link", [False, True])
def test_a_file_that_appears_meanwhile_stays(tmp_path, link):
    def raced():
        with written_beside(tmp_path / "a") as part:
            part.write_text("new")
            if link:
                (tmp_path / "a").symlink_to(tmp_path / "nowhere")
            else:
                (tmp_path / "a").write_text("theirs")

    with pytest.raises(FileExistsError):
        raced()
    assert contents(tmp_path) == ({} if link else {"a": "theirs"})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_holds_something_stays(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_text("theirs")
    with pytest.raises(OSError, match="not empty"), written_beside(tmp_path / "a") as part:
        part.mkdir()
    assert contents(tmp_path) == {"a/b": "theirs"}


def test_a_file_is_replaced_where_it_may_be(tmp_path):
    (tmp_path / "a").write_text("old")
    write_whole(tmp_path / "a", b"new")
    assert contents(tmp_path) == {"a": "new"}


def test_a_link_of_the_unfinished_name_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    unfinished(tmp_path / "a").symlink_to(tmp_path / "mine")
    write_whole(tmp_path / "a", b"data")
    assert contents(tmp_path) == {"a": "data", "mine": "mine"}


def test_a_folder_of_the_unfinished_name_is_not_deleted(tmp_path):
    part = unfinished(tmp_path / "a")
    part.mkdir()
    (part / "b").write_text("theirs")
    with pytest.raises(OSError, match=r"directory|permitted"):
        write_whole(tmp_path / "a", b"data")
    assert contents(tmp_path) == {f"{part.name}/b": "theirs"}
