"""Against what SARIF 2.1.0 asks of a document, and GitHub of one that it shows."""

import json

from faulty_configs import LLAMA, MET, YARN

from posenc.models.check.sarif import sarif
from posenc.models.check.verdict import RULES, check


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
    assert place["artifactLocation"]["uri"] == (tmp_path / "config.json").as_posix()
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
