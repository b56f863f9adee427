"""Test messages about files against messages written by hand."""

from posenc.models.files.errors import ModelError, Unread


def test_an_error_names_file_key_value_and_what_is_allowed():
    error = ModelError("a\n.json", "k", "must be so", [1], "2")
    assert str(error) == "a\\n.json:k: must be so, got [1], allowed: 2"
    assert str(ModelError("a.json", "", "is empty")) == "a.json: is empty"
    assert issubclass(Unread, ModelError)
    assert issubclass(ModelError, ValueError)
