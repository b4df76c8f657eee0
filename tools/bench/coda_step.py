"""Our side of the scripts that compare a training step: one run of coda_bench step."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def coda_step(options, flags):
    """{header, records} of one run of coda_bench step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        command = [options.bench, "step", "--config", options.config, "--steps", str(options.steps), "--warm-up",
                   str(options.warm_up), "--alone", "--json", str(path), *flags]
        subprocess.run(command, check=True, stdout=sys.stdout if options.verbose else subprocess.DEVNULL)
        return json.loads(path.read_text())
