"""What the model wrote during training: the newest samples in full, the earlier ones folded."""

from __future__ import annotations

import html

import runlog


def plain(text: str) -> str:
    """For a page: a model may write characters that steer a terminal or that HTML does not have."""
    return html.escape("".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def shown(record: dict) -> str:
    """A sample after its prompt, which is set apart; token ids where the log has no text."""
    text = record["sample"]
    if text is None:
        return f'<pre class="sample">{" ".join(map(str, record["tokens"]))}</pre>'
    prompt = f"<b>{plain(record['prompt'])}</b>" if record.get("prompt") else ""
    return f'<pre class="sample">{prompt}{plain(text)}</pre>'


def blocks(log: runlog.RunLog) -> str:
    """Newest first; empty without samples."""
    parts = []
    for step, records in reversed(log.samples.items()):
        content = "".join(shown(record) for record in records)
        open_ = "" if parts else " open"
        parts.append(f"<details{open_}><summary>Step {step:,}</summary>{content}</details>")
    return "".join(parts)
