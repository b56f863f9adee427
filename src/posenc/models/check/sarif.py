"""Convert the result of a check to SARIF 2.1.0, the format of GitHub's code scanning.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posenc.models.check.faults import RULES, Fault, FaultRule
from posenc.models.check.verdict import Check
from posenc.support.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(checked: Check, path: Path) -> dict[str, Any]:
    """Return the SARIF document of a check; `path` is the checked path as the user passed it."""
    driver = {
        "name": "posenc",
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in RULES.values()],
    }
    notifications = [
        {"level": "warning", "message": {"text": f"cannot say: {why}"}} for why in checked.unknown
    ]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": checked.verdict != "cannot say",
                "exitCode": checked.exit_code,
                "toolExecutionNotifications": notifications,
            }
        ],
        "properties": {
            "verdict": checked.verdict,
            "strict": checked.strict,
            "ignored": list(checked.ignored),
            "undetectable": list(checked.undetectable),
        },
        "results": [_result(finding, path) for finding in checked.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: FaultRule) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": rule.name,
        "shortDescription": {"text": rule.what},
        "defaultConfiguration": {"level": rule.level},
    }
    if rule.threads:
        entry["helpUri"] = rule.links[0]
        entry["help"] = {"text": "Reported in " + ", ".join(rule.links)}
    return entry


def _result(finding: Fault, path: Path) -> dict[str, Any]:
    file = path / finding.file if path.is_dir() else path.with_name(finding.file)
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    place["region"] = {"startLine": _line(file, finding.key)}
    return {
        "ruleId": finding.rule.name,
        "ruleIndex": [*RULES].index(finding.rule.name),
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": place}],
    }


def _uri(file: Path) -> str:
    """Return a file's URI, relative to the working directory if the file is below it.

    GitHub only matches paths relative to the root of the checkout.
    """
    whole = Path(os.path.abspath(file))
    here = Path.cwd()
    return (
        quote(whole.relative_to(here).as_posix()) if whole.is_relative_to(here) else whole.as_uri()
    )


def _line(file: Path, key: str) -> int:
    """Return the line of a key in a config; 1 if the key is not found or the file is not text."""
    if file.suffix != ".json" or not key:
        return 1
    wanted = json.dumps(key.rpartition(".")[2].partition("[")[0])
    lines = file.read_text("utf-8", errors="replace").splitlines()
    return next((n for n, line in enumerate(lines, 1) if wanted in line), 1)
