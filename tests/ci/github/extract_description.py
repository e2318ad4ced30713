"""Cut what the stand-in needs out of GitHub's published OpenAPI description.

Run once for a new version of it, with the file `generated/api.github.com.json` of the npm package `@octokit/openapi`:

    npm pack @octokit/openapi && tar xzf octokit-openapi-*.tgz
    python -m tests.ci.github.extract_description package/generated/api.github.com.json 23.0.2
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DESCRIPTION = Path(__file__).parents[2] / "data" / "github" / "openapi.json"
_REPOSITORY = "/repos/{owner}/{repo}"
_KEPT = {
    f"{_REPOSITORY}/contents/{{path}}": ("get",),
    f"{_REPOSITORY}/issues": ("get", "post"),
    f"{_REPOSITORY}/issues/{{issue_number}}": ("patch",),
    f"{_REPOSITORY}/issues/{{issue_number}}/comments": ("get", "post"),
    f"{_REPOSITORY}/issues/comments/{{comment_id}}": ("get", "patch", "delete"),
    f"{_REPOSITORY}/issues/comments/{{comment_id}}/reactions": ("post",),
    f"{_REPOSITORY}/pulls": ("get",),
    f"{_REPOSITORY}/pulls/{{pull_number}}": ("get",),
    f"{_REPOSITORY}/collaborators/{{username}}/permission": ("get",),
    f"{_REPOSITORY}/actions/runs/{{run_id}}/rerun": ("post",),
    f"{_REPOSITORY}/actions/workflows/{{workflow_id}}/dispatches": ("post",),
    f"{_REPOSITORY}/check-runs": ("post",),
    f"{_REPOSITORY}/check-runs/{{check_run_id}}": ("patch",),
    f"{_REPOSITORY}/commits/{{ref}}/check-runs": ("get",),
}
_WORDS_FOR_PEOPLE = {"description", "summary", "example", "examples", "externalDocs"}


def extract(whole: dict[str, Any], version: str) -> dict[str, Any]:
    """The requests of the paths that are used: their parameters and bodies, and the statuses of the answers."""
    paths: dict[str, Any] = {}
    for path, methods in _KEPT.items():
        paths[path] = {}
        for method in methods:
            operation = whole["paths"][path][method]
            kept: dict[str, Any] = {"operationId": operation["operationId"]}
            kept["parameters"] = [_resolved(parameter, whole) for parameter in operation.get("parameters", ())]
            if "requestBody" in operation:
                kept["requestBody"] = _resolved(operation["requestBody"], whole)
            kept["responses"] = sorted(operation["responses"])
            paths[path][method] = kept
    return {
        "openapi": whole["openapi"],
        "info": {"title": whole["info"]["title"], "x-taken-from": f"npm package @octokit/openapi {version} (MIT)"},
        "paths": paths,
    }


def _resolved(node: Any, whole: dict[str, Any], *, are_names: bool = False) -> Any:
    """Without references, and without words for people; where keys are names of properties, all of them count."""
    if isinstance(node, list):
        return [_resolved(item, whole) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target: Any = whole
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return _resolved(target, whole)
    return {
        key: _resolved(value, whole, are_names=key == "properties" and not are_names)
        for key, value in node.items()
        if are_names or key not in _WORDS_FOR_PEOPLE
    }


if __name__ == "__main__":
    source, version = sys.argv[1:]
    cut = extract(json.loads(Path(source).read_text()), version)
    DESCRIPTION.write_text(json.dumps(cut, indent=1, sort_keys=True) + "\n")
