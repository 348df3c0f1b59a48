"""Small images and files of a chosen size, without a library for them."""

from __future__ import annotations

import random
import struct
import zlib


def png(width: int = 640, height: int = 480, padding_bytes: int = 0) -> bytes:
    """A PNG as far as its header tells; *padding_bytes* stand in the place of its pixels."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", size) + _chunk(b"IDAT", _noise(padding_bytes)) + _chunk(b"IEND", b"")


def _noise(count: int) -> bytes:
    """Bytes that nothing compresses, the same each time."""
    return random.Random(7).randbytes(count)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pdf(page_count: int = 3, *, is_compressed: bool = False) -> bytes:
    """A PDF as far as its page tree tells."""
    tree = f"<< /Type /Pages /Kids [3 0 R] /Count {page_count} >>".encode()
    if not is_compressed:
        return b"%PDF-1.4\n2 0 obj\n" + tree + b"\nendobj\n%%EOF"
    packed = zlib.compress(b"2 0 " + tree)
    head = f"1 0 obj\n<< /Type /ObjStm /N 1 /First 4 /Length {len(packed)} /Filter /FlateDecode >>\nstream\n"
    return b"%PDF-1.5\n" + head.encode() + packed + b"\nendstream\nendobj\n%%EOF"
