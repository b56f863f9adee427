"""Test the document against the requirements of SARIF 2.1.0 and of GitHub."""

import json
import re
from urllib.parse import unquote, urlsplit

from faulty_configs import LLAMA, MET, YARN

from posenc.models.check.faults import RULES
from posenc.models.check.sarif import sarif
from posenc.models.check.verdict import check


def document(folder, **keys):
    config = {key: value for key, value in (LLAMA | keys).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return json.loads(json.dumps(sarif(check(folder), folder)))


def test_a_fault_is_shown_at_its_line(tmp_path):
    told = document(tmp_path, rope_scaling=YARN | {"betafast": 32})
    assert told["version"] == "2.1.0"
    (run,) = told["runs"]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("unknown-key", "error")
    place = result["locations"][0]["physicalLocation"]
    lines = (tmp_path / "config.json").read_text().splitlines()
    assert "betafast" in lines[place["region"]["startLine"] - 1]
    assert place["artifactLocation"]["uri"] == (tmp_path / "config.json").as_uri()
    assert run["invocations"][0]["exitCode"] == 1


def test_every_rule_has_its_place_and_its_thread(tmp_path):
    for keys in MET.values():
        run = document(tmp_path, **keys)["runs"][0]
        for result in run["results"]:
            rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
            assert rule["id"] == result["ruleId"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules) == len(RULES)
    assert all(rule["helpUri"].startswith("https://") for rule in rules if "helpUri" in rule)


def test_what_cannot_be_said_is_a_notification_and_no_result(tmp_path):
    run = document(tmp_path, my_rope_trick=True)["runs"][0]
    assert run["results"] == []
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert "cannot say" in notification["message"]["text"]


LEVEL = ("none", "note", "warning", "error")
TEXT = {"text!": str}
# The objects of the SARIF 2.1.0 schema that a document of ours has. None of them may have other
# properties; those with ! are required.
SCHEMA = {
    "$schema": "uri",
    "version!": ("2.1.0",),
    "runs!": [
        {
            "tool!": {
                "driver!": {
                    "name!": str,
                    "semanticVersion": str,
                    "rules": [
                        {
                            "id!": str,
                            "shortDescription": TEXT,
                            "help": TEXT,
                            "helpUri": "uri",
                            "defaultConfiguration": {"level": LEVEL},
                        }
                    ],
                }
            },
            "columnKind": ("utf16CodeUnits", "unicodeCodePoints"),
            "properties": {"verdict": str, "strict": bool, "ignored": [str], "undetectable": [str]},
            "invocations": [
                {
                    "executionSuccessful!": bool,
                    "exitCode": int,
                    "toolExecutionNotifications": [{"level": LEVEL, "message!": TEXT}],
                }
            ],
            "results": [
                {
                    "ruleId": str,
                    "ruleIndex": int,
                    "level": LEVEL,
                    "message!": TEXT,
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": "uri"},
                                "region": {"startLine": int},
                            }
                        }
                    ],
                }
            ],
        }
    ],
}


def validate(value, schema, at="$"):
    """Raise AssertionError for a value that the schema does not allow."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), at
        named = {key.rstrip("!"): key.endswith("!") for key in schema}
        assert value.keys() <= named.keys(), at
        assert {key for key, required in named.items() if required} <= value.keys(), at
        for key, inner in value.items():
            part = schema[f"{key}!"] if named[key] else schema[key]
            validate(inner, part, f"{at}.{key}")
    elif isinstance(schema, list):
        assert isinstance(value, list), at
        for number, inner in enumerate(value):
            validate(inner, schema[0], f"{at}[{number}]")
    elif schema == "uri":  # RFC 3986
        assert re.fullmatch(r"(%[0-9A-F]{2}|[\w.~!$&'()*+,;=:@/?#-])+", value, re.ASCII), at
    elif isinstance(schema, tuple):
        assert value in schema, at
    else:
        assert type(value) is schema, at


def test_documents_fit_the_schema(tmp_path):
    for keys in [*MET.values(), {"my_rope_trick": True}]:
        validate(document(tmp_path, **keys), SCHEMA)


def test_a_file_in_the_working_directory_has_a_relative_uri(tmp_path, monkeypatch):
    """GitHub ignores results with an absolute path."""
    folder = tmp_path / "a b#c%41ü<x>"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    told = document(folder, rope_scaling=YARN | {"betafast": 32})
    validate(told, SCHEMA)
    place = told["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    uri = urlsplit(place["artifactLocation"]["uri"])
    assert (uri.scheme, uri.fragment) == ("", "")
    assert unquote(uri.path) == "a b#c%41ü<x>/config.json"
