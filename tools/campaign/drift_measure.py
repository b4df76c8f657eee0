"""One run of tools/campaign/drift and what is seen of it from outside: log, resident memory, GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import threading
import time

import campaign
from campaign import Failed

GPU_FIELDS = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "watts": "power.draw", "celsius": "temperature.gpu",
              "device_mib": "memory.used"}
SAMPLE_S = 1.0
SAMPLES = 20  # of a run, at least: each says little
GPU_SAMPLE_S = 0.1  # at its power limit a GPU changes its clock by some percent many times per second


class GpuMonitor:
    """What nvidia-smi prints every GPU_SAMPLE_S, as means from one take() to the next; nothing without nvidia-smi."""

    def __init__(self, index: str | None):
        self.lines, self.process = [], None
        if index is None:
            return
        if not shutil.which("nvidia-smi"):
            raise Failed("there is no nvidia-smi, which says clocks, power and memory of the GPU")
        self.process = subprocess.Popen(
            ["nvidia-smi", "-i", index, "--query-gpu=" + ",".join(GPU_FIELDS.values()), "--format=csv,noheader,nounits",
             "-lms", str(int(GPU_SAMPLE_S * 1000))], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self) -> None:
        for line in self.process.stdout:
            values = {}
            for name, word in zip(GPU_FIELDS, line.split(",")):
                try:
                    values[name] = float(word)
                except ValueError:
                    pass  # [N/A]
            self.lines.append(values)

    def take(self) -> dict:
        lines, self.lines = self.lines, []
        names = [name for name in GPU_FIELDS if lines and all(name in values for values in lines)]
        return {name: round(statistics.mean(values[name] for values in lines), 2) for name in names}

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


class LogReader:
    """Steps of a log that is being written: (step, loss as it stands there, ms)."""

    def __init__(self, path: str):
        self.path, self.at, self.rest, self.steps = path, 0, b"", []

    def read(self) -> None:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                fresh = file.read()
        except FileNotFoundError:
            return
        self.at += len(fresh)
        *lines, self.rest = (self.rest + fresh).split(b"\n")
        for line in lines:
            loss = re.search(rb'"loss": ?([^,}]+)', line)
            if loss:
                record = json.loads(line)
                self.steps.append((record["step"], loss[1].decode(), record["ms"]))


def anonymous_kib(pid: int) -> int | None:
    """Resident memory of a process that is no file's: pages of the mapped data come and go."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            found = re.search(r"RssAnon:\s+(\d+) kB", file.read())
        return int(found[1]) if found else None
    except OSError:
        return None


def measure(command: list[str], folder: str, run: str, seconds: float, gpu_index: str | None) -> dict:
    """Runs `command` for `seconds` from its first step on and SAMPLES samples, then ends it with SIGKILL: a checkpoint
    of this size would take long and is nobody's. Returns {"steps": [(step, loss, ms)], "samples": [{"s", "steps",
    "rss_kib", ...}]}."""
    log, samples, started = LogReader(os.path.join(folder, run, "log.jsonl")), [], None
    with open(os.path.join(folder, run + ".txt"), "wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT)
    monitor = GpuMonitor(gpu_index)
    try:
        interval = min(SAMPLE_S, seconds / SAMPLES)
        patience = time.monotonic() + 600
        while started is None or time.monotonic() - started < seconds or len(samples) < SAMPLES:
            time.sleep(interval if started else min(interval, 0.05))
            rss = anonymous_kib(process.pid)  # before poll: a process that has ended has none
            ended = process.poll() is not None
            log.read()
            if started is None and log.steps:
                started = time.monotonic()
            if ended:
                break
            if started is None and time.monotonic() > patience:
                raise Failed("no step within 10 minutes")
            if started is not None:
                samples.append({"s": round(time.monotonic() - started, 3), "steps": len(log.steps), "rss_kib": rss,
                                **monitor.take()})
        if process.poll() is not None and (process.returncode != 0 or not log.steps):
            with open(os.path.join(folder, run + ".txt"), encoding="utf-8", errors="replace") as file:
                raise Failed(f"{run} ended with {process.returncode}: {campaign.last_line(file.read())}")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        monitor.close()
    return {"steps": log.steps, "samples": samples}
