"""The story that every Python client plays against the server.

A script prints one line of JSON, which the Go test in test/clients compares with what the server must have said.
"""

import json
import sys

# Characters of two, three and four bytes, and a nested object.
ECHO_ARGUMENTS = {"text": "grüße 你好 🚀", "nested": {"list": [1, "two", None]}}


def arguments() -> tuple[str, str]:
    """The endpoint and the mode: legacy, auto, or a version to pin."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} URL [mode]")
    return sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "auto"


def report(seen: dict) -> None:
    print(json.dumps(seen), flush=True)
