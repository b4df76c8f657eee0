"""A configuration with other values of some keys."""

from __future__ import annotations

import json


def changed(config: dict, changes: dict) -> dict:
    """A copy of `config` with the values of dotted keys replaced, or left out where the value is ..."""
    result = json.loads(json.dumps(config))
    for path, value in changes.items():
        *sections, key = path.split(".")
        parent = result
        for section in sections:
            parent = parent.setdefault(section, {})
        if value is ...:
            parent.pop(key, None)
        else:
            parent[key] = value
    return result
