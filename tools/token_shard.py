"""Token shards (docs/FORMATS.md): their bytes from tokens, and tokens from their bytes."""

import array
import struct

HEADER_BYTES = 1024
# Of each width of a token in bytes: magic, version, and the type of an array of them.
FORMATS = {2: (20240520, 1, "H"), 4: (20240801, 7, "I")}


def shard_bytes(tokens, width=2):
    """The shard of these tokens, with `width` bytes each."""
    magic, version, kind = FORMATS[width]
    tokens = array.array(kind, tokens)
    return struct.pack("<256i", magic, version, len(tokens), *[0] * 253) + tokens.tobytes()


def shard_tokens(data):
    """The tokens of a shard's bytes, as an array. Raises ValueError where they are no shard."""
    for width, (magic, version, kind) in FORMATS.items():
        if len(data) >= HEADER_BYTES and struct.unpack_from("<2i", data) == (magic, version):
            count, = struct.unpack_from("<i", data, 8)
            if len(data) == HEADER_BYTES + count * width:
                return array.array(kind, data[HEADER_BYTES:])
    raise ValueError("not a token shard")
