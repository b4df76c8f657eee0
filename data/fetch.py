"""Files from the network for the scripts of this folder: downloads resume where they stopped, checked by SHA-256.

A file must have the checksum that the script knows, else the one that the host states for it (Hugging Face does, in
X-Linked-ETag), else the one of its first download. SHA256SUMS next to the files stores them in the format of sha256sum;
a file that is there already is checked against it and not downloaded again.

CODA_DATA_MIRROR=URL takes every file, under its own name, from that folder instead of its host: a private mirror, or
file:///... on a disk.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

SUMS = "SHA256SUMS"
TIMEOUT_S = 30
ATTEMPTS = 5  # in a row without a byte of progress
PIECE = 1 << 20


class Problem(Exception):
    """What stops a script; the message says what, where, and what to do."""


@dataclass(frozen=True)
class Source:
    url: str
    name: str  # of the file here
    sha256: str | None = None


def sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def read_sums(folder: str) -> dict[str, str]:
    """Checksums by file name."""
    try:
        with open(os.path.join(folder, SUMS), encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("  ", 1) for line in file if line.strip()]
    except FileNotFoundError:
        return {}
    return {line[1]: line[0] for line in lines if len(line) == 2}


def write_sum(folder: str, name: str, sha256: str) -> None:
    sums = {**read_sums(folder), name: sha256}
    path = os.path.join(folder, SUMS)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.writelines(f"{value}  {key}\n" for key, value in sorted(sums.items()))
    os.replace(path + ".new", path)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Keeps the checksum that a host states when it redirects to its storage."""

    stated: str | None = None

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        self.stated = self.stated or stated_sha256(headers)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def stated_sha256(headers) -> str | None:
    tag = (headers.get("X-Linked-ETag") or "").strip('"')
    return tag if re.fullmatch("[0-9a-f]{64}", tag) else None


def url_of(source: Source) -> str:
    mirror = os.environ.get("CODA_DATA_MIRROR")
    return f"{mirror.rstrip('/')}/{urllib.parse.quote(source.name)}" if mirror else source.url


def progress(name: str, have: int, total: int | None, end: str = "") -> None:
    if sys.stderr.isatty() or end:
        of = f" of {total / 1e6:,.1f}" if total else ""
        print(f"\r{name}: {have / 1e6:,.1f}{of} MB", end=end, file=sys.stderr, flush=True)


def transfer(url: str, part: str, name: str) -> tuple[int | None, str | None]:
    """Appends the missing rest of the file to `part`. Returns the file's size and stated checksum, each where known."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    request = urllib.request.Request(url, headers={"User-Agent": "coda_train"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    redirects = _Redirects()
    try:
        answer = urllib.request.build_opener(redirects).open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        size = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        if error.code == 416 and have and size and int(size[1]) == have:  # it was complete already
            return have, redirects.stated or stated_sha256(error.headers)
        if error.code == 416 and have:
            os.remove(part)
            return transfer(url, part, name)
        raise
    with answer:
        resumed = getattr(answer, "status", None) == 206
        length = answer.headers.get("Content-Length")
        have = have if resumed else 0
        total = have + int(length) if length else None
        with open(part, "ab" if resumed else "wb") as file:
            while piece := answer.read(PIECE):
                file.write(piece)
                have += len(piece)
                progress(name, have, total)
        return total, redirects.stated or stated_sha256(answer.headers)


def download(source: Source, part: str) -> str | None:
    """Downloads into `part`, and continues where a connection breaks. Returns the checksum that the host states."""
    url, failures = url_of(source), 0
    host = urllib.parse.urlsplit(url).netloc or "this machine"
    while True:
        before = os.path.getsize(part) if os.path.exists(part) else 0
        try:
            total, stated = transfer(url, part, source.name)
            have = os.path.getsize(part)
            if total in (None, have):
                progress(source.name, have, total, "\n")
                return stated
            reason = f"the connection to {host} ended early"
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Problem(f"{url}: {host} answers {error.code} {error.reason}") from None
            reason = f"{host} answers {error.code} {error.reason}"
        except urllib.error.URLError as error:
            reason = f"{host} cannot be reached ({error.reason})"
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            reason = f"the connection to {host} broke ({type(error).__name__})"
        have = os.path.getsize(part) if os.path.exists(part) else 0
        failures = failures + 1 if have <= before else 0
        if failures >= (ATTEMPTS if have else 1):
            kept = (
                f"{have:,} bytes are kept, and the same command continues from there"
                if have
                else "nothing was downloaded"
            )
            raise Problem(
                f"{source.name}: {reason}; {kept}. Is this machine online? "
                "The file may also be fetched elsewhere from\n"
                f"  {source.url}\nand put here as\n  {part.removesuffix('.part')}"
            )
        time.sleep(min(5.0, 0.2 * 2**failures))


def fetch(source: Source, folder: str) -> str:
    """The path of the source's file in `folder`, downloaded if it is not there, and checked. Throws Problem."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, source.name)
    if os.path.exists(path):
        expected, said_by = source.sha256 or read_sums(folder).get(source.name), "this script and SHA256SUMS know"
    else:
        stated = download(source, path + ".part")
        expected, said_by = source.sha256 or stated, "is stated for it"
    complete = os.path.exists(path)
    found = sha256_of(path if complete else path + ".part")
    if expected and found != expected:
        if not complete:
            os.remove(path + ".part")
        what = (
            f"{path} is damaged or another file; remove it and run this again"
            if complete
            else (
                f"{url_of(source)} gave another file, which was removed; run this again, and if that does not help, "
                "the data set has changed"
            )
        )
        raise Problem(f"{what}: its SHA-256 is\n  {found}\nand the one that {said_by} is\n  {expected}")
    if not complete:
        os.replace(path + ".part", path)
    if read_sums(folder).get(source.name) != found:
        write_sum(folder, source.name, found)
        if not expected:
            print(f"{source.name}: no checksum of it is known; {found} is recorded in {SUMS}", file=sys.stderr)
    return path
