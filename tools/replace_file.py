"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os


def replace_file(path: str, content: str | bytes) -> None:
    """Afterwards the file has this content, or is as it was. A program that is killed may leave PATH.new."""
    aside = path + ".new"
    try:
        with open(aside, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(aside, path)
    except BaseException:
        if os.path.exists(aside):
            os.remove(aside)
        raise
