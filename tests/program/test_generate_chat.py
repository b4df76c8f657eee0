"""coda_generate with a tokenizer: chats, and which tokenizer it takes."""

import json
import os
import sys
import unittest

from program import PROGRAM, ROOT, changed, shard
from test_generate import EXPORT, OVERFIT, SHORT, GenerateTestCase

sys.path.insert(0, os.path.join(ROOT, "tests", "tokenize"))
from tokenizing import small_tokenizer

HAS_TOKENIZERS = os.path.exists(os.path.join(os.path.dirname(PROGRAM), "coda_tokenize"))

@unittest.skipUnless(HAS_TOKENIZERS, "no tokenizers in this build")
class ChatTest(GenerateTestCase):
    """A model with a tokenizer and a chat template."""

    MARKS = ["<|im_start|>", "<|im_end|>", "<|bos|>"]
    TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                "{% endif %}")

    def setUp(self):
        super().setUp()
        tokenizer = small_tokenizer("gpt2")
        first = max(each["id"] for each in tokenizer["added_tokens"]) + 1
        self.ids = {mark: first + i for i, mark in enumerate(self.MARKS)}
        tokenizer["added_tokens"] += [{"id": id_, "content": mark, "special": True} for mark, id_ in self.ids.items()]
        self.vocab = tokenizer["model"]["vocab"]
        os.mkdir(self.path("hf"))
        self.write("hf/tokenizer.json", json.dumps(tokenizer).encode())
        self.write("hf/tokenizer_config.json", json.dumps({"chat_template": self.TEMPLATE}).encode())
        # The model learns to answer every message by "c", and then ends.
        letters = {name: self.vocab[name] for name in "abcusertinm"}
        newline = self.vocab["\u010a"]
        chat = [self.ids["<|im_start|>"], *(letters[c] for c in "user"), newline, letters["a"], self.ids["<|im_end|>"],
                newline, self.ids["<|im_start|>"], *(letters[c] for c in "assistant"), newline, letters["c"],
                self.ids["<|im_end|>"], newline]
        self.write("tokens.bin", shard(chat * 60))

    def config(self, changes=None, name="config.json", base=None):
        base = changed(OVERFIT, {"model.vocab_size": self.ids["<|bos|>"] + 1, "data.train": "tokens.bin",
                                 "model.bos_token_id": self.ids["<|bos|>"], "data.tokenizer": "hf/tokenizer.json"})
        return super().config(changes, name, base)

    def test_chats(self):
        self.train()
        with self.subTest("the answer ends with its message, and marks are no text"):
            self.assertEqual(self.text("--chat", "--prompt", "a", "--temperature", "0"), "c")
            answer = self.answers("--model", "run", "--prompts",
                                  self.lines({"messages": [{"role": "user", "content": "a"}]}), "--temperature", "0")[1]
            self.assertEqual((answer["text"], answer["finish"]), ("c", "stop"))
            self.assertEqual(answer["tokens"], [self.vocab["c"], self.ids["<|im_end|>"]])
            self.assertEqual(answer["prompt_tokens"], 9 + 11)
        with self.subTest("a mark in a message is text, in a prompt it is the mark"):
            def count(*arguments, text):
                return self.answers("--model", "run", "--prompts", self.lines({"prompt": text}), "--tokens", "1",
                                    *arguments)[1]["prompt_tokens"]
            self.assertEqual(count("--chat", text="<|im_end|>"), count("--chat", text="") + len("<|im_end|>"))
            self.assertEqual(count(text="<|im_end|>"), 2)
            self.assertEqual(count(text=""), 1)  # only bos_token_id
            self.assertEqual(count("--chat", "--system", "ab", text=""),
                             count("--chat", text="") + len("system") + 2 + 4)
        with self.subTest("tokenizer_config.json may say that no bos token begins a text"):
            self.write("run/tokenizer/tokenizer_config.json", b'{"bos_token": null}')
            self.assertEqual(count(text="ab"), 2)
        with self.subTest("what a template refuses is an error with its text and line, and only in a chat"):
            self.write("run/tokenizer/chat_template.jinja", b"a\n{{ raise_exception('no ' + messages[0].content) }}")
            self.refuse_generate("--model", "run", "--chat", "--prompt", "a",
                                 says=["chat_template.jinja: line 2", "no a"])
            self.write("run/tokenizer/chat_template.jinja", b"{% if %}")
            self.refuse_generate("--model", "run", "--chat", "--prompt", "a", says="chat_template.jinja: line 1")
            self.text("--prompt", "a")

    def test_the_tokenizer(self):
        self.train(changes=SHORT)
        os.rename(self.path("hf"), self.path("gone"))  # the run has its copy
        self.text("--prompt", "a")
        self.train(*EXPORT, changes={**SHORT, "data.tokenizer": None})
        self.refuse_generate("--model", "exported", "--prompt", "a", says=["exported", "tokenizer.json", "--tokenizer"])
        # The run has the model's BOS; a folder's tokenizer says nothing of one.
        flags = ["--tokenizer", "gone/tokenizer.json", "--bos", "yes"]
        other = self.generate("--model", "exported", "--prompt", "a", *flags).out
        self.assertEqual(other[:-1], self.text("--prompt", "a"))


if __name__ == "__main__":
    unittest.main()
