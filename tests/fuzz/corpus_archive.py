"""tests/fuzz/corpus.tar.xz, the fuzz targets' corpora: TARGET/NAME of make_corpus.py, TARGET/found/NAME of tools/campaign/fuzz.

The same files give the same archive: they are sorted, and neither times nor owners are stored.
"""

import io
import lzma
import os
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHIVE = os.path.join(HERE, "corpus.tar.xz")
sys.path.append(os.path.join(HERE, "..", "..", "tools"))
from replace_file import replace_file  # noqa: E402


def read(archive: str) -> dict[str, bytes]:
    """The archive's files by name."""
    with tarfile.open(archive, "r:xz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def write(archive: str, files: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)  # mode 644, time 0, owner 0
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    replace_file(archive, lzma.compress(packed.getvalue(), preset=9))


def read_folder(folder: str) -> dict[str, bytes]:
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder).replace(os.sep, "/")] = file.read()
    return files


def write_folder(folder: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
