"""Why there are no records, as JUnit XML and SARIF. Pure."""

import json
from xml.etree import ElementTree

from roofwatch.ci.report.interchange import SARIF_SCHEMA_URL, valid_xml
from roofwatch.ci.report.not_measured import NotMeasured


def note_to_junit(note: NotMeasured) -> str:
    """Write one test case: it fails if the change broke the benchmark."""
    root = ElementTree.Element("testsuites", name="roofwatch")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name="roofwatch measured",
        tests="1",
    )
    suite.attrib |= {
        "failures": str(int(note.is_failure)),
        "errors": "0",
        "skipped": "0",
    }
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname="roofwatch",
        name="measurement",
    )
    if note.is_failure:
        failure = ElementTree.SubElement(
            case,
            "failure",
            message=valid_xml(note.title),
        )
        failure.text = valid_xml(note.error)
    else:
        suite.set("skipped", "1")
        ElementTree.SubElement(
            case,
            "skipped",
            message=valid_xml(note.title),
        )
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def note_to_sarif(note: NotMeasured, *, version: str) -> str:
    """Write SARIF without results; an error is a notification."""
    notifications = []
    if note.error:
        level = "error" if note.is_failure else "warning"
        notifications = [{"level": level, "message": {"text": note.title}}]
    invocation = {
        "executionSuccessful": not note.error,
        "toolExecutionNotifications": notifications,
    }
    driver = {
        "name": "roofwatch",
        "version": version,
        "rules": [],
    }
    run = {
        "tool": {"driver": driver},
        "results": [],
        "invocations": [invocation],
    }
    document = {
        "$schema": SARIF_SCHEMA_URL,
        "version": "2.1.0",
        "runs": [run],
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return f"{text}\n"
