"""coda_generate with a model that was just trained: its losses, its bits, its time before the first token."""

import json
import os

from .registry import SMALL, SMALLER, Failed, part

LOSS_TOLERANCE = 1e-3  # between the loss of decoded tokens and --eval's


class Sizes:
    """Of the texts: on the CPU, which is slower and runs no fused kernel, smaller ones."""

    def __init__(self, device):
        cuda = device == "cuda"
        self.decoders = ("fused", "passes") if cuda else ("passes",)
        self.scored = 4096 if cuda else 256
        self.step = 130 if cuda else 13  # by which each of the eight prompts is longer than the one before
        self.tokens = 300 if cuda else 20
        self.many = 12500 if cuda else 60  # tokens of each of the eight, for a long run


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def byte_model(check, sizes):
    """Trains a model and exports it. Returns folders, the configuration of its evaluation, and the text that is
    evaluated. folders: of the model as it is trained and of the model in 4 bits, the folder for coda_generate and the
    folder for --init-from. The tokens are the bytes of --tokens, so that no tokenizer is needed."""
    with open(check.options.tokens, "rb") as file:
        data = file.read(2_000_000)
    text = data[-(sizes.scored + 1):]
    for name, content in (("train.txt", data), ("text.txt", text)):
        with open(check.path(name), "wb") as file:
            file.write(content)
    changes = {"data.train": check.path("train.txt"), "data.val": check.path("text.txt"), "data.document_mask": False,
               "model.vocab_size": 256, "model.bos_token_id": None, "model.max_position_embeddings": 32768,
               "training.steps": 60}
    if check.options.device == "cpu":  # 4-bit integers come in groups of 128 columns
        changes |= SMALLER | {"model.hidden_size": 128, "model.intermediate_size": 128, "model.head_dim": 32}
    run = check.config("bytes", SMALL, changes | {"checkpoint.at_end": True})
    check.train("--config", run)
    folders = {"": (check.path("bytes"), check.path("exported")), "int4 ": (check.path("exported_int4"),) * 2}
    for (_, exported), dtype in zip(folders.values(), ("float32", "int4")):
        check.train("--config", run, "--resume", "--export", exported, "--export-dtype", dtype)
    length = {"training.seq_len": sizes.scored, "training.micro_batch_size": 1, "training.grad_accumulation_steps": 1}
    return folders, check.config("evaluation", SMALL, changes | length), text


def eval_loss(check, config, folder):
    out = check.train("--config", config, "--init-from", folder, "--eval")
    line = next((line for line in out.splitlines() if line.startswith("validation loss")), None)
    if line is None:
        raise Failed("coda_train --eval printed no validation loss")
    return float(line.split()[2])


def generate(check, folder, *arguments):
    """The answers of coda_generate, one JSON object each."""
    out = check.run(check.program("coda_generate"), "--model", folder, "--device", check.options.device, *arguments)
    return [json.loads(line) for line in out.splitlines()]


def tokens_of(check, folder, sizes, batch, tokens, decoder):
    """id -> the tokens of eight prompts of different lengths."""
    context = 8 * sizes.step + tokens
    answers = generate(check, folder, "--prompts", check.path("prompts.jsonl"), "--batch", str(batch), "--tokens",
                       str(tokens), "--context", str(context), "--decoder", decoder)
    return {answer["id"]: answer["tokens"] for answer in answers}


def same_tokens(check, folder, sizes, decoder, name):
    """Raises Failed unless the sequences are equal in every batch."""
    first = tokens_of(check, folder, sizes, 8, sizes.tokens, decoder)
    for batch in (8, 3, 1):
        if tokens_of(check, folder, sizes, batch, sizes.tokens, decoder) != first:
            raise Failed(f"{name}: other tokens in a second run, in batches of {batch}")


def long_run(check, folder, sizes, decoder, name):
    """Makes many tokens; returns their number."""
    many = tokens_of(check, folder, sizes, 8, sizes.many, decoder)
    count = sum(map(len, many.values()))
    if count != 8 * sizes.many:
        raise Failed(f"{name}: {count} tokens of {8 * sizes.many}")
    reference = tokens_of(check, folder, sizes, 1, sizes.tokens, decoder)
    if any(many[prompt][:len(tokens)] != tokens for prompt, tokens in reference.items()):
        raise Failed(f"{name}: a long run begins with other tokens than a short one")
    return count


@part
def generation(check):
    """coda_generate, also in 4 bits: the loss of --eval, the same bits in every batch, 100 000 tokens of each"""
    sizes = Sizes(check.options.device)
    folders, evaluation, text = byte_model(check, sizes)
    write_lines(check.path("text.jsonl"), [{"tokens": list(text)}])
    prompts = [{"id": i, "tokens": list(text[:1 + sizes.step * i]), "seed": 7 + i} for i in range(8)]
    write_lines(check.path("prompts.jsonl"), prompts)
    said, count = [], 0
    for form, (folder, exported) in folders.items():
        expected = eval_loss(check, evaluation, exported)
        for decoder in sizes.decoders:
            name = form + decoder
            scored, = generate(check, folder, "--score", "--prompts", check.path("text.jsonl"), "--context",
                               str(sizes.scored + 8), "--decoder", decoder)
            if abs(scored["loss"] - expected) >= LOSS_TOLERANCE:
                raise Failed(f"{name}: the loss of {scored['tokens']} decoded tokens is {scored['loss']}, "
                             f"--eval's is {expected}")
            said.append(f"{name} loss {scored['loss'] - expected:+.1e} from --eval's")
            same_tokens(check, folder, sizes, decoder, name)
        count += long_run(check, folder, sizes, sizes.decoders[0], form + sizes.decoders[0])
    return "; ".join([*said, "8 sequences equal in batches of 8, 3 and 1", f"{count} tokens"])


@part
def prefill(check):
    """coda_generate --bench: llama1b's prefill compared with a training forward pass, and its first token"""
    config = check.config("llama1b", "llama1b", {})
    check.train("--config", config, "--export", check.path("exported"))
    path = check.path("generate.json")
    check.python(os.path.join("bench", "generate.py"), check.program("coda_bench"), check.program("coda_generate"),
                 "--model", check.path("exported"), "--name", "llama1b", "--config", config, "--json", path,
                 "--context", "8192")
    made = check.record_run("generate", path)
    return ", ".join(f"{r['context']} tokens {r['prefill_ms']:.2f} ms, {r['prefill_ratio']:.3f} of a training forward, "
                     f"first token {r['first_token_ms']:.2f} ms" for r in made if "prefill_ratio" in r)
