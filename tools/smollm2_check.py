#!/usr/bin/env python3
"""SmolLM2-135M-Instruct in this project's programs compared with Hugging Face transformers, in fp32 and in bf16.

    data/smollm2.py
    tools/smollm2_check.py --bin build/hopper/bin --model data/smollm2

The text is the repository's documents. transformers computes on the GPU where one is, TF32 off. What must hold on a GPU:

* coda_train --eval: the loss is transformers' bf16 loss within 1e-3.
* coda_generate --score, for each decoder: the logits of a prompt of 500 tokens are no further from transformers' fp32
  logits than transformers' own in bf16, in relative RMS and in KL divergence.
* coda_generate, greedy, for each decoder: the text is transformers' in fp32, up to a token where the fp32 logits of the
  two choices lie within bf16's rounding of each other: a distance that has two standard deviations of the error of
  transformers' bf16 logits there, or one bf16 spacing of the best logit where that is larger.

With --device cpu the programs compute in fp32, so loss and logits must be transformers' fp32 ones within 1e-4, and the
texts must be equal; all of it is shorter.

Exit status: 0 all hold, 1 not.
"""

from __future__ import annotations

import argparse
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
except ImportError as error:
    sys.exit(f"smollm2_check.py: needs PyTorch and transformers: {error}")

from logit_distance import Distances
from token_shard import shard_bytes

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPTS = ("Once upon a time", "The best way to learn a language is", "def fibonacci(n):")
QUESTIONS = ("Why is the sky blue?", "Explain how photosynthesis works.", "Give me a recipe for pancakes.")
LOSS_TOLERANCE, CPU_TOLERANCE = 1e-3, 1e-4


class Sizes:
    def __init__(self, device: str):
        cuda = device == "cuda"
        self.decoders = ("fused", "passes") if cuda else ("passes",)
        self.seq_len, self.batch, self.batches = (1024, 4, 12) if cuda else (64, 1, 2)
        self.prompt = 500 if cuda else 50
        self.texts, self.tokens = (3, 120) if cuda else (1, 8)


class Programs:
    def __init__(self, options, folder: str):
        self.options, self.folder = options, folder

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def run(self, name: str, *arguments: str) -> str:
        command = [os.path.join(os.path.abspath(self.options.bin), name), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"smollm2_check.py: {' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def loss(self, tokens: list[int], sizes: Sizes) -> float:
        with open(self.path("text.bin"), "wb") as file:
            file.write(shard_bytes(tokens))
        config = {"data": {"train": "text.bin", "val": "text.bin"}, "device": self.options.device,
                  "training": {"seq_len": sizes.seq_len, "micro_batch_size": sizes.batch, "steps": 1},
                  "validation": {"batches": sizes.batches}}
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        out = self.run("coda_train", "--config", "config.json", "--init-from", self.options.model, "--eval")
        return float(next(line for line in out.splitlines() if line.startswith("validation loss")).split()[2])

    def generate(self, decoder: str, requests: list[dict], *flags: str) -> list[dict]:
        """The answers in the order of the requests."""
        with open(self.path("requests.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": i} | request) + "\n" for i, request in enumerate(requests))
        out = self.run("coda_generate", "--model", self.options.model, "--device", self.options.device, "--decoder",
                       decoder, "--prompts", "requests.jsonl", *flags)
        return sorted(map(json.loads, out.splitlines()), key=lambda answer: answer["id"])

    def logits(self, decoder: str, tokens: list[int]) -> torch.Tensor:
        """(tokens - 1, vocabulary)"""
        name = f"logits_{decoder}.f32"
        self.generate(decoder, [{"tokens": tokens}], "--score", "--logits", name)
        with open(self.path(name), "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.float32).view(len(tokens) - 1, -1)


def loss_of(model, tokens: list[int], sizes: Sizes, device: str) -> float:
    """Of the sequences that coda_train's validation takes: each begins with the last target of the one before."""
    both = torch.tensor(tokens, device=device)
    count = sizes.batch * sizes.batches * sizes.seq_len
    inputs, targets = (both[at:at + count].view(-1, sizes.batch, sizes.seq_len) for at in (0, 1))
    losses = [torch.nn.functional.cross_entropy(model(x).logits.float().flatten(0, 1), y.flatten())
              for x, y in zip(inputs, targets)]
    return torch.stack(losses).double().mean().item()


def first_difference(found: list[int], expected: list[int]) -> int | None:
    """The place of the first token that differs, or that only one of them has; None where they are equal."""
    for at, (ours, theirs) in enumerate(zip(found, expected)):
        if ours != theirs:
            return at
    return None if len(found) == len(expected) else min(len(found), len(expected))


def allowed_distance(exact, rounded) -> float:
    """Of two logits of one position whose order bf16 may change; `rounded` are the logits of transformers in bf16."""
    error = (rounded - exact).square().mean().sqrt().item()
    spacing = 2.0 ** (math.floor(math.log2(abs(exact.max().item()))) - 7)
    return max(spacing, 2 * math.sqrt(2) * error)


def text_problem(found, expected, exact_logits, rounded_logits) -> tuple[bool, str]:
    """Whether a greedy text keeps to fp32's, and how it reads. The functions give the logits after a text's beginning."""
    at = first_difference(found, expected)
    if at is None:
        return True, f"{len(found)} tokens"
    if at == min(len(found), len(expected)):
        return False, f"{len(found)} tokens, expected {len(expected)}"
    exact = exact_logits(expected[:at])
    distance = (exact[expected[at]] - exact[found[at]]).item()
    allowed = allowed_distance(exact, rounded_logits(expected[:at])) if rounded_logits else 0.0
    return distance <= allowed, f"{at} tokens (then logits {distance:.3f} apart, allowed {allowed:.3f})"


class Transformers:
    def __init__(self, folder: str, device: str):
        self.device = device
        # AutoTokenizer of transformers 5 builds a GPT2Tokenizer, which loses the file's Digits.
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self.models = {name: AutoModelForCausalLM.from_pretrained(folder).to(dtype).eval().to(device)
                       for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))}

    def logits(self, name: str, tokens: list[int]) -> torch.Tensor:
        """(tokens, vocabulary)"""
        return self.models[name](torch.tensor([tokens], device=self.device)).logits[0].float().cpu()

    def greedy(self, name: str, prompt: list[int], most: int) -> list[int]:
        given = torch.tensor([prompt], device=self.device)
        made = self.models[name].generate(given, attention_mask=torch.ones_like(given), max_new_tokens=most,
                                          do_sample=False)
        return made[0, len(prompt):].tolist()

    def prompts(self, count: int) -> list[list[int]]:
        chats = [self.tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False,
                                                    add_generation_prompt=True) for question in QUESTIONS[:count]]
        return [self.tokenizer(text)["input_ids"] for text in (*PROMPTS[:count], *chats)]


def documents() -> str:
    text = []
    for path in (os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))):
        with open(path, encoding="utf-8") as file:
            text.append(file.read())
    return "\n\n".join(text)


class Report:
    """What was found, a line each; `wrong` are those that do not hold."""

    def __init__(self):
        self.wrong = []

    def add(self, holds: bool, says: str) -> None:
        print(says)
        if not holds:
            self.wrong.append(says)


def check(options, programs: Programs) -> list[str]:
    """The lines of what does not hold."""
    sizes, cuda = Sizes(options.device), options.device == "cuda"
    reference = Transformers(options.model, "cuda" if torch.cuda.is_available() else "cpu")
    wanted = sizes.batch * sizes.batches * sizes.seq_len + 1
    tokens = reference.tokenizer(documents(), verbose=False)["input_ids"][:wanted]
    if len(tokens) < wanted:
        sys.exit(f"smollm2_check.py: the documents have {len(tokens)} tokens, {wanted} are needed")
    found, report = programs.loss(tokens, sizes), Report()
    losses = {name: loss_of(model, tokens, sizes, reference.device) for name, model in reference.models.items()}
    rival, tolerance = ("bf16", LOSS_TOLERANCE) if cuda else ("fp32", CPU_TOLERANCE)
    report.add(abs(found - losses[rival]) < tolerance,
               f"loss of {wanted - 1} tokens {found:.5f}, transformers bf16 {losses['bf16']:.5f}, fp32 "
               f"{losses['fp32']:.5f} (allowed {tolerance:g} from its {rival})")

    prompt = tokens[:sizes.prompt]
    exact, rounded = (reference.logits(name, prompt[:-1]) for name in ("fp32", "bf16"))
    prompts = reference.prompts(sizes.texts)
    texts = {name: [reference.greedy(name, start, sizes.tokens) for start in prompts] for name in ("fp32", "bf16")}
    for decoder in sizes.decoders:
        distances = Distances(programs.logits(decoder, prompt), rounded, exact)
        report.add(distances.hold(None if cuda else CPU_TOLERANCE),
                   f"{decoder}: logits of {len(prompt)} tokens {distances}")
        answers = programs.generate(decoder, [{"tokens": start, "temperature": 0, "max_tokens": sizes.tokens}
                                              for start in prompts])
        for answer, start, expected, other in zip(answers, prompts, texts["fp32"], texts["bf16"]):
            after = {name: lambda made, name=name, start=start: reference.logits(name, start + made)[-1]
                     for name in ("fp32", "bf16")}
            good, says = text_problem(answer["tokens"], expected, after["fp32"], after["bf16"] if cuda else None)
            place = first_difference(other, expected)
            report.add(good, f"{decoder}: greedy text equal for {says}, transformers bf16 "
                             f"{len(other) if place is None else place}")
    return report.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, metavar="DIR", help="folder of the programs")
    parser.add_argument("--model", required=True, metavar="DIR", help="the folder that data/smollm2.py made")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of the programs")
    options = parser.parse_args()
    options.model = os.path.abspath(options.model)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory(prefix="smollm2_check_") as folder:
        wrong = check(options, Programs(options, folder))
    if wrong:
        print(f"smollm2_check.py: {'; '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
