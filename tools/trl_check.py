#!/usr/bin/env python3
"""Fine-tuning by coda_tokenize and coda_train compared with TRL's SFTTrainer, on the CPU in fp32.

    data/smollm2.py
    tools/trl_check.py --bin build/cpu/bin --model data/smollm2 --steps 200

It makes conversations of 70 to 120 tokens, so that each row of 128 tokens has one conversation. TRL has them in the
order of coda_tokenize's rows, with assistant_only_loss and the model's chat template, where {% generation %} encloses
what an assistant says and the token that ends its turn. Both sides start from the weights of --model, and have the same
AdamW, clipping and batches. What must hold:

* labels: tokens and targets of every conversation are TRL's, in the shard and its mask. So are those of every step's
  batch, as coda_train --dump-batches and TRL's data loader give them.
* first step: the gradient's norm is transformers' within 2e-5, relative, where the gradient of looking up the padding
  token counts. transformers leaves it out, also where that token is in the text: here it ends every turn. TRL trains
  like that, so its norms differ by up to 4e-3 and its losses by 1e-3 in 200 steps; otherwise the losses would by 1e-5.
* losses: every step's loss is TRL's within 2e-3.
* packing: two conversations in one row of 256 tokens have the loss of the two by themselves, weighted by their targets,
  within 1e-5. The same row with data.document_mask off must not, or this would show nothing.

Not compared: a row that TRL packs, and conversations that are cut. The files stay if --folder is given.

Exit status: 0 all hold, 1 not.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import random
import subprocess
import sys
import tempfile
import time

try:
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback
    from transformers.utils.logging import disable_progress_bar
    from trl import SFTConfig, SFTTrainer
except ImportError as error:
    sys.exit(f"trl_check.py: needs PyTorch, transformers, datasets and trl: {error}")

import runlog
import torch_inputs

CONVERSATIONS, SHORTEST, LONGEST, SEQ_LEN, BATCH = 60, 70, 120, 128, 2
LEARNING_RATE, BETAS, EPS, WEIGHT_DECAY, MAX_GRAD_NORM = 1e-5, (0.9, 0.95), 1e-8, 0.0, 1.0
LOSS_TOLERANCE, PACKED_TOLERANCE, NORM_TOLERANCE = 2e-3, 1e-5, 2e-5
IGNORED = -100  # TRL's label of a token that is no target
TARGET, BEGINS = 1, 2  # bits of a mask

SAID = "message['content'] + '<|im_end|>'"
PIECES = ("The {} near the {} is {} than it was in {}.", "I would {} the {} first, and only then the {}.",
          "Is there a {} which {}s without a {}?", "def {}(x):\n    return x * {} + {}", "1. {}\n2. {}\n3. {}",
          "\"{}\", she said; {} euros (not {}) – that's it!", "Zürich, naïve {} & 東京: {} → {}.",
          "| {} | {} |\n|---|---|\n| {} | 7 |", "Don't {} the {}, we'll {} it later.")
WORDS = ("river", "engine", "older", "1987", "measure", "garden", "copper", "3.14", "paint", "library", "violin",
         "slower", "count", "harbour", "sum_of", "lantern", "64", "mountain", "repair", "yellow", "theorem")


def say(random_source: random.Random, pieces: int) -> str:
    chosen = (random_source.choice(PIECES) for _ in range(pieces))
    return random_source.choice((" ", "\n", "\n\n")).join(
        piece.format(*random_source.choices(WORDS, k=piece.count("{}"))) for piece in chosen)


def make_conversations(tokenizer) -> list[list[dict]]:
    """Each of SHORTEST to LONGEST tokens: one to three questions with answers, some with a system message."""
    source, made = random.Random(20251125), []
    while len(made) < CONVERSATIONS:
        messages = [{"role": "system", "content": say(source, 1)}] if source.random() < 0.3 else []
        for _ in range(source.randint(1, 3)):
            messages += [{"role": role, "content": say(source, source.randint(1, 3))} for role in ("user", "assistant")]
        if SHORTEST <= len(tokenizer.apply_chat_template(messages)["input_ids"]) <= LONGEST and messages not in made:
            made.append(messages)
    return made


def read_tokenizer(folder: str) -> PreTrainedTokenizerFast:
    """By tokenizer.json, with the marks of what counts in the chat template."""
    # Where tokenizer_config.json names a class such as GPT2Tokenizer, AutoTokenizer of transformers 5 takes only
    # vocabulary and merges of tokenizer.json, and splits by the steps of that class.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    template = tokenizer.chat_template or ""
    start = "'<|im_start|>' + message['role'] + '\n' + "
    whole = "{{" + start + SAID + " + '\n'}}"
    if whole not in template:
        sys.exit(f"trl_check.py: {folder}: the chat template has no {whole!r}")
    tokenizer.chat_template = template.replace(whole, "{{" + start.removesuffix(" + ") + "}}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{" + SAID + "}}{% endgeneration %}"
        "{% else %}{{" + SAID + "}}{% endif %}{{'\n'}}")
    return tokenizer


class Programs:
    def __init__(self, options, folder: str):
        self.options, self.folder = options, folder

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def run(self, name: str, *arguments: str) -> None:
        command = [os.path.join(os.path.abspath(self.options.bin), name), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"trl_check.py: {' '.join(command)} ended with {done.returncode}: {done.stderr}")

    def tokenize(self, stem: str, conversations: list[list[dict]], seq_len: int) -> None:
        with open(self.path(stem + ".jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"messages": messages}) + "\n" for messages in conversations)
        self.run("coda_tokenize", "--tokenizer", os.path.join(self.options.model, "tokenizer.json"), "--seq-len",
                 str(seq_len), "--out", stem, stem + ".jsonl")

    def shard(self, stem: str) -> list[list[tuple[int, bool]]]:
        """(token, whether it is a target) of what lies between beginnings: conversations and filler."""
        with open(self.path(stem + ".bin"), "rb") as file:
            tokens = array.array("H", file.read()[1024:])
        with open(self.path(stem + ".mask"), "rb") as file:
            mask = file.read()[1024:]
        parts = []
        for token, bits in zip(tokens, mask, strict=True):
            if bits & BEGINS or not parts:
                parts.append([])
            parts[-1].append((token, bool(bits & TARGET)))
        return parts

    def train(self, stem: str, name: str, seq_len: int, batch: int, steps: int, document_mask: bool = True):
        """The run's log, and its batches: (steps, tokens | targets | begins, batch, length)."""
        config = {"data": {"train": stem + ".bin", "val": stem + ".bin", "shuffle": False,
                           "document_mask": document_mask},
                  "training": {"seq_len": seq_len, "micro_batch_size": batch, "steps": steps,
                               "max_grad_norm": MAX_GRAD_NORM},
                  "optimizer": {"learning_rate": LEARNING_RATE, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS,
                                "weight_decay": WEIGHT_DECAY},
                  "lr_schedule": {"type": "constant", "warmup_steps": 0}, "validation": {"batches": 1},
                  "checkpoint": {"at_end": False}, "output": {"directory": "run_" + name},
                  "device": "cpu", "precision": "bf16"}  # on a CPU it stores and computes in fp32
        with open(self.path(name + ".json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=4)
        self.run("coda_train", "--config", name + ".json", "--init-from", self.options.model, "--dump-batches",
                 name + ".npy")
        return runlog.read(self.path("run_" + name)), torch_inputs.read_batches(self.path(name + ".npy"))


class RecordingTrainer(SFTTrainer):
    """Keeps what each step computes, which the log of a step may round."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.losses, self.norms, self.batches = [], [], []

    def training_step(self, model, inputs, *arguments, **keywords):
        self.batches.append({name: inputs[name].clone() for name in ("input_ids", "labels")})
        loss = super().training_step(model, inputs, *arguments, **keywords)
        self.losses.append(loss.item())
        return loss

    def log(self, logs, *arguments, **keywords):
        if "grad_norm" in logs:
            self.norms.append(float(logs["grad_norm"]))
        super().log(logs, *arguments, **keywords)


def make_trainer(options, tokenizer, conversations: list[list[dict]], folder: str) -> RecordingTrainer:
    config = SFTConfig(
        output_dir=os.path.join(folder, "trl"), max_steps=options.steps, per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=1, train_sampling_strategy="sequential", packing=False, max_length=SEQ_LEN,
        assistant_only_loss=True, optim="adamw_torch", learning_rate=LEARNING_RATE, adam_beta1=BETAS[0],
        adam_beta2=BETAS[1], adam_epsilon=EPS, weight_decay=WEIGHT_DECAY, max_grad_norm=MAX_GRAD_NORM,
        lr_scheduler_type="constant", warmup_steps=0, bf16=False, fp16=False, gradient_checkpointing=False,
        use_cpu=True, logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True)
    trainer = RecordingTrainer(
        model=AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32), args=config,
        processing_class=tokenizer, train_dataset=Dataset.from_list([{"messages": each} for each in conversations]))
    trainer.remove_callback(PrinterCallback)
    return trainer


def label_differences(parts: list[list[tuple[int, bool]]], trainer: SFTTrainer) -> list[str]:
    """Of the conversations of a shard, in the order of TRL's; filler counts nothing."""
    found = [part for part in parts if any(target for _, target in part)]
    rows = trainer.train_dataset
    if len(found) != len(rows):
        return [f"{len(found)} conversations, TRL {len(rows)}"]
    differences = []
    for number, (ours, row) in enumerate(zip(found, rows)):
        theirs = [(token, label != IGNORED) for token, label in zip(row["input_ids"], row["labels"], strict=True)]
        if ours != theirs:
            at = next((i for i, (one, other) in enumerate(zip(ours, theirs)) if one != other),
                      min(len(ours), len(theirs)))
            differences.append(f"conversation {number}, token {at}: (token, target) {ours[at:at + 3]}, TRL "
                               f"{theirs[at:at + 3]}")
    return differences


def batch_differences(ours: torch.Tensor, theirs: list[dict]) -> list[str]:
    """Of the batches that the two trainers read: the targets, and the tokens up to the last target of a row."""
    if len(ours) != len(theirs):
        return [f"{len(ours)} batches, TRL {len(theirs)}"]
    differences = []
    for step, (batch, other) in enumerate(zip(ours, theirs), 1):
        tokens, targets = batch[0], batch[1]
        labels = torch.full_like(targets, IGNORED)
        labels[:, :other["labels"].shape[1] - 1] = other["labels"][:, 1:]
        ids = torch.zeros_like(tokens)
        ids[:, :other["input_ids"].shape[1]] = other["input_ids"]
        counts = labels != IGNORED
        read = counts.flip(1).cumsum(1).flip(1) > 0
        same = torch.equal(torch.where(targets < 0, IGNORED, targets), labels)
        if not same or not torch.equal(tokens[read], ids[read]):
            differences.append(f"step {step}: tokens or targets of the batch")
    return differences


def whole_gradient_norm(trainer: SFTTrainer) -> float:
    """Of the first batch, with the gradient of looking up the padding token."""
    batch, model = next(iter(trainer.get_train_dataloader())), trainer.model
    embedding = model.get_input_embeddings()
    padding, embedding.padding_idx = embedding.padding_idx, None
    logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(),
                                      ignore_index=IGNORED).backward()
    norm = torch.stack([weight.grad.double().norm() for weight in model.parameters()]).norm().item()
    model.zero_grad(set_to_none=True)
    embedding.padding_idx = padding
    return norm


class Report:
    """What was found, a line each; `wrong` are those that do not hold."""

    def __init__(self):
        self.wrong = []

    def add(self, holds: bool, says: str) -> None:
        print(says, flush=True)
        if not holds:
            self.wrong.append(says)


def compare_training(options, programs: Programs, tokenizer, report: Report) -> None:
    conversations = make_conversations(tokenizer)
    programs.tokenize("chats", conversations, SEQ_LEN)
    # The longest first, and the earlier of equal ones: coda_tokenize's order of rows.
    conversations.sort(key=lambda each: -len(tokenizer.apply_chat_template(each)["input_ids"]))
    trainer = make_trainer(options, tokenizer, conversations, programs.folder)
    parts = programs.shard("chats")
    differences = label_differences(parts, trainer)
    counted = sum(target for part in parts for _, target in part)
    report.add(not differences, f"labels: {len(conversations)} conversations, {counted} targets, {len(differences)} "
                                f"conversations differ {'; '.join(differences[:3])}".rstrip())

    start = time.monotonic()
    log, batches = programs.train("chats", "chats", SEQ_LEN, BATCH, options.steps)
    between = time.monotonic()
    norm = whole_gradient_norm(trainer)
    trainer.train()
    end = time.monotonic()
    differences = batch_differences(batches, trainer.batches)
    report.add(not differences, f"batches: {len(batches)} of {BATCH} conversations, {len(differences)} differ "
                                f"{'; '.join(differences[:3])}".rstrip())

    losses, norms = log.series("loss"), log.series("grad_norm")
    apart = {step: abs(losses[step] - loss) for step, loss in enumerate(trainer.losses, 1)}
    print("  step  loss      TRL       |difference|  norm     TRL")
    for step in sorted({1, *(part * options.steps // 8 for part in range(1, 9))} - {0}):
        print(f"{step:6d}  {losses[step]:.6f}  {trainer.losses[step - 1]:.6f}  {apart[step]:.2e}      "
              f"{norms[step]:.5f}  {trainer.norms[step - 1]:.5f}")
    report.add(abs(norms[1] - norm) <= NORM_TOLERANCE * norm,
               f"first step: gradient norm {norms[1]:.6f}, transformers {norm:.6f}, relative difference "
               f"{abs(norms[1] - norm) / norm:.1e} (allowed {NORM_TOLERANCE:g})")
    worst = max(apart, key=apart.get)
    moved = max(abs(norms[step] - norm) / norm for step, norm in enumerate(trainer.norms, 1))
    report.add(len(losses) == len(apart) == options.steps and apart[worst] <= LOSS_TOLERANCE,
               f"losses: {len(apart)} steps, largest difference {apart[worst]:.2e} at step {worst}, mean "
               f"{sum(apart.values()) / len(apart):.2e} (allowed {LOSS_TOLERANCE:g}); gradient norms differ by at most "
               f"{moved:.1e}, relative")
    print(f"seconds: coda_train {between - start:.0f}, TRL {end - between:.0f}")


def compare_packing(programs: Programs, tokenizer, report: Report) -> None:
    """Two conversations by themselves, and the same two in one row."""
    pair, found = make_conversations(tokenizer)[:2], {}
    for name, conversations in (("first", pair[:1]), ("second", pair[1:]), ("both", pair)):
        programs.tokenize(name, conversations, 2 * SEQ_LEN)
        log, batches = programs.train(name, name, 2 * SEQ_LEN, 1, 1)
        found[name] = log.series("loss")[1], int((batches[:, 1] >= 0).sum())
    if len(programs.shard("both")) < 3 or len(batches) != 1:
        sys.exit("trl_check.py: the two conversations are not in one row")
    weighted = sum(loss * targets for loss, targets in (found["first"], found["second"])) / found["both"][1]
    mixed = programs.train("both", "mixed", 2 * SEQ_LEN, 1, 1, document_mask=False)[0].series("loss")[1]
    apart = abs(found["both"][0] - weighted)
    targets = found["first"][1] + found["second"][1] == found["both"][1]
    report.add(targets and apart <= PACKED_TOLERANCE < abs(mixed - weighted),
               f"packing: one row {found['both'][0]:.7f} over {found['both'][1]} targets, the two by themselves "
               f"{weighted:.7f}, difference {apart:.1e} (allowed {PACKED_TOLERANCE:g}; without document_mask "
               f"{abs(mixed - weighted):.1e})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, metavar="DIR", help="folder of the programs")
    parser.add_argument("--model", required=True, metavar="DIR", help="the folder that data/smollm2.py made")
    parser.add_argument("--steps", type=int, default=200, help="of training (default: 200)")
    parser.add_argument("--folder", metavar="DIR", help="new or empty, where the files go (default: a temporary one)")
    options = parser.parse_args()
    options.model = os.path.abspath(options.model)
    if options.steps < 1:
        parser.error("--steps: at least 1")
    if options.folder and os.path.exists(options.folder) and os.listdir(options.folder):
        parser.error(f"--folder: {options.folder} is not empty")
    disable_progress_bars()
    disable_progress_bar()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trl_check_") as temporary:
        folder = os.path.abspath(options.folder or temporary)
        os.makedirs(folder, exist_ok=True)
        programs, tokenizer = Programs(options, folder), read_tokenizer(options.model)
        compare_packing(programs, tokenizer, report)
        compare_training(options, programs, tokenizer, report)
    if report.wrong:
        print(f"trl_check.py: {'; '.join(report.wrong)}", file=sys.stderr)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
