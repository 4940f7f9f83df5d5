"""PNG files without an imaging library: eight bits, three colours, no filter.

>>> file = png(np.zeros((2, 3, 3), dtype=np.uint8))
>>> file[1:4], int.from_bytes(file[16:20], "big"), int.from_bytes(file[20:24], "big")  # width, height
(b'PNG', 3, 2)
"""

from __future__ import annotations

import struct
import zlib

import numpy as np


def png(pixels: np.ndarray) -> bytes:
    """The file of an image of (height, width, 3) bytes."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # a line begins with the number of its filter, 0
    lines[:, 1:] = pixels.reshape(height, -1)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
