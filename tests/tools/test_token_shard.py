"""tools/token_shard.py: bytes made by hand, both ways, and what is no shard."""

import struct
import unittest

import logs  # noqa: F401  (finds the tools)
from token_shard import shard_bytes, shard_tokens


class TokenShard(unittest.TestCase):
    NARROW = struct.pack("<3i", 20240520, 1, 3) + bytes(1012) + bytes([1, 0, 255, 255, 2, 1])
    WIDE = struct.pack("<3i", 20240801, 7, 2) + bytes(1012) + bytes([255, 255, 255, 255, 0, 0, 1, 0])

    def test_both_ways(self):
        for data, width, tokens in (self.NARROW, 2, [1, 65535, 258]), (self.WIDE, 4, [2**32 - 1, 65536]):
            self.assertEqual(shard_bytes(tokens, width), data)
            self.assertEqual(list(shard_tokens(data)), tokens)
        self.assertEqual(list(shard_tokens(shard_bytes([]))), [])

    def test_refuses(self):
        wrong_version = struct.pack("<3i", 20240520, 7, 3) + self.NARROW[12:]
        for data in b"", self.NARROW[:1023], self.NARROW[:-1], self.NARROW + b"\0", wrong_version, self.WIDE[:-4]:
            with self.assertRaises(ValueError):
                shard_tokens(data)
        with self.assertRaises(OverflowError):
            shard_bytes([65536])


if __name__ == "__main__":
    unittest.main()
