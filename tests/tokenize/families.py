"""Made-up tokenizers with the configurations of real model families, and hostile texts for them.

build(NAME) is a tokenizer.json as a value; a small BPE trainer learns its vocabulary from random text,
so that no package is needed.
"""

import collections
import functools
import random
import unicodedata

from tokenizing import REGEXES, RandomText, byte_alphabet

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
SPM_DECODERS = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
QWEN35 = REGEXES["qwen2"].replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CJK = r"[一-龥ࠀ-一가-퟿]+"
V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
      r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def sequence(key, steps):
    return {"type": "Sequence", key: steps}


def split(regex, behavior="Isolated", invert=False):
    kind = regex if isinstance(regex, dict) else {"Regex": regex}
    return {"type": "Split", "pattern": kind, "behavior": behavior, "invert": invert}


def byte_level(use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def splits(*steps, use_regex=False):
    return sequence("pretokenizers", [*steps, byte_level(use_regex)])


DIGITS = {"type": "Digits", "individual_digits": True}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
D1 = sequence("decoders", SPM_DECODERS)
YI = sequence("decoders", SPM_DECODERS[:3])
UNK = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}


def added(*contents, **flags):
    return [{"content": content, **FLAGS, **flags} for content in contents]


TAGS = added("<unk>", "<s>", "</s>")
CHAT = added("<|im_start|>", "<|im_end|>")
RUNS = [*added(*(" " * n for n in range(2, 9)), special=False, normalized=True)]

# name: normalizer, pre_tokenizer, model, decoder, added tokens, in the vocabulary too, tokens left out
FAMILIES = {
    "1_llama2": (sequence("normalizers", [PREPEND, REPLACE]), None, UNK, D1, TAGS, True, 0),
    "1_llama2_2023": (sequence("normalizers", [PREPEND, REPLACE]), None, UNK, D1,
                      [{**token, "normalized": True} for token in TAGS], True, 0),
    "2_phi3": (sequence("normalizers", [PREPEND, REPLACE]), None, UNK, D1,
               TAGS + added("<|user|>", "<|end|>", rstrip=True) + added("<|lstrip|>", lstrip=True)
               + added("<|word|>", single_word=True, special=False), True, 0),
    "3_mistral": (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}, UNK, D1,
                  TAGS + added("[INST]", "[/INST]"), True, 0),
    "3_metaspace_old": (None, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}, UNK,
                        {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}, TAGS, True, 0),
    "4_yi": (sequence("normalizers", [REPLACE]), None, UNK, YI, TAGS, True, 0),
    "4_gemma": (REPLACE, split({"String": " "}, "MergedWithPrevious"), UNK, YI,
                TAGS + added("\n\n", "▁▁", "▁▁▁", special=False), True, 0),
    "5_llama3": (None, splits(split(REGEXES["llama3"])), {"ignore_merges": True}, byte_level(True),
                 added("<|begin_of_text|>", "<|eot_id|>"), False, 0),
    "6_smollm": (None, splits(DIGITS, use_regex=True), {}, byte_level(True), CHAT, True, 21),
    "7_qwen2": ({"type": "NFC"}, splits(split(REGEXES["qwen2"])), {"continuing_subword_prefix": ""}, byte_level(True),
                CHAT + added("<think>", special=False), False, 0),
    "7_qwen35": ({"type": "NFC"}, splits(split(QWEN35)), {}, byte_level(True), CHAT, False, 0),
    "8_gpt2": (None, byte_level(True), {}, byte_level(True), added("<|endoftext|>", normalized=True), True, 0),
    "8_neox": ({"type": "NFC"}, byte_level(True), {}, byte_level(True), added("<|endoftext|>") + RUNS, False, 13),
    "9_phi2": (None, byte_level(True), {}, byte_level(True),
               added(*("\t" * n for n in range(9, 1, -1)), special=False, normalized=True) + RUNS[::-1], False, 0),
    "10_olmo2": (None, splits(split(REGEXES["llama3"], "Removed", True)), {}, byte_level(True),
                 CHAT + added("|||IP|||", special=False), False, 0),
    "11_deepseek_coder": (sequence("normalizers", []), splits(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                                             split(CJK), DIGITS), {}, byte_level(True),
                          added("<｜begin▁of▁sentence｜>"), False, 0),
    "12_deepseek_llm": (None, splits(split(r"[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+"), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
                                     split(r"\s+$"), split(CJK), DIGITS), {}, byte_level(True),
                        added("<｜begin▁of▁sentence｜>"), False, 0),
    "12_deepseek_v3": (sequence("normalizers", []), splits(split(r"\p{N}{1,3}"), split(r"[一-龥぀-ゟ゠-ヿ]+"), split(V3)), {},
                       byte_level(True), CHAT + added("<tool>", special=False, normalized=True), False, 0),
    "o200k": (None, splits(split(O200K)), {}, byte_level(True), CHAT, False, 0),
    "unknown": (None, None, {"unk_token": "<unk>"}, YI, TAGS, True, 0),
}


def learned(words, count):
    """`count` merges over words, lists of symbols."""
    merges, seen = [], set()
    counted = collections.Counter(map(tuple, words))
    for _ in range(count):
        pairs = collections.Counter()
        for word, times in counted.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += times
        pairs = {pair: times for pair, times in pairs.items() if pair[0] + pair[1] not in seen}
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        seen.add(best[0] + best[1])
        joined = collections.Counter()
        for word, times in counted.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            joined[tuple(out)] += times
        counted = joined
    return merges


@functools.lru_cache(maxsize=None)
def build(name, merges=250, seed=1):
    normalizer, pre_tokenizer, model, decoder, tokens, inside, missing = FAMILIES[name]
    bytes_ = "ByteLevel" in str(pre_tokenizer)
    dice, text = random.Random(seed), RandomText(seed, [token["content"] for token in tokens])
    corpus = "".join(text.document() for _ in range(80))
    alphabet = byte_alphabet()
    if bytes_:
        left_out = [0, *dice.sample(range(128, 256), missing - 1)] if missing else []
        symbols = [c for byte, c in alphabet.items() if byte not in left_out]
        words = [[alphabet[byte] for byte in word.encode() if alphabet[byte] in symbols] for word in
                 corpus.replace(" ", "\0 ").replace("\n", "\0\n").split("\0")]
        extra = [token["content"] for token in tokens] if inside else []
        vocab = [*extra, *symbols]
    else:
        words = [list(word) for word in corpus.replace(" ", "\0▁").split("\0")]
        known = sorted({c for word in words for c in word if dice.random() < 0.7 and c not in "\0"} | set("▁abcdefo "))
        vocab = ["<unk>", "<s>", "</s>", *([f"<0x{byte:02X}>" for byte in range(256)] if "byte_fallback" in model else []), *known]
        words = [[c for c in word if c in known] for word in words]
    made = learned([word[:12] for word in words if word], merges)
    for left, right in made:
        if left + right not in vocab:
            vocab.append(left + right)
    ids = {token: i for i, token in enumerate(dict.fromkeys(vocab))}
    next_id, listed = len(ids), []
    for token in tokens:
        known_id = ids.get(token["content"])
        listed.append({"id": next_id if known_id is None else known_id, **token})
        next_id += known_id is None
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": listed, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **model,
                  "vocab": ids, "merges": [list(merge) for merge in made]},
    }


class HostileText(RandomText):
    """What decides between one rule and another: spaces around tokens, marks spelled out, characters without token."""

    WORDS = [*RandomText.WORDS, "▁", "▁▁a", "a▁b", "<0x41>", "<0xE2>", "ab", "abc", "٣٤", "一龥", "ࠀ", "ⓐ", "x\u200dy", "\U00010400"]

    def __init__(self, seed, tokenizer):
        super().__init__(seed, [token["content"] for token in tokenizer["added_tokens"]])

    def character(self):
        while True:  # what a later version of Unicode has assigned has another category in each library
            character = super().character()
            category = unicodedata.category(character)
            # The package's NFC does not know marks that came after Unicode 9.
            later = category[0] == "M" and unicodedata.ucd_3_2_0.category(character) == "Cn"
            if category != "Cn" and not later:
                return character

    def special(self):
        token = self.random.choice(self.specials)
        if self.random.random() < 0.6:
            around = ["", "", " ", "  ", "\n", "\t \u00a0", "a", "_", "é", "\u0301", "1", "▁", token]
            return self.random.choice(around) + token + self.random.choice(around)
        return super().special() if len(token) > 1 else token

    def document(self):
        return "".join(self.piece() for _ in range(self.random.choice([1, 1, 2, 2, 3, 4, 6, 10])))
