"""Streams of compressed files that end with an error where the file is damaged, and not in silence.

The readers of `bz2` and `lzma` take what does not begin another compressed stream for the end of the file. Dumps of
Wikipedia have thousands of streams, one behind the other, and a flipped bit at the beginning of one would leave out all
text behind it. Zeros between streams and at the end are padding, as the format of xz says and `gzip` allows.
"""

import bz2
import io
import lzma
from collections.abc import Callable
from typing import IO, Any, Protocol

CHUNK = 1 << 16  # compressed bytes read at once


class Decoder(Protocol):
    """Decoder of one compressed stream: `bz2.BZ2Decompressor` or `lzma.LZMADecompressor`."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Streams(io.RawIOBase):
    """The text of compressed streams that follow each other in one file.

    Reading raises EOFError for a truncated stream. For bytes that are not a stream it raises the decoder's error:
    OSError (bz2) or LZMAError (xz).
    """

    def __init__(self, source: IO[bytes], decoder: Callable[[], Any]) -> None:
        self._source, self._new = source, decoder
        self._decoder: Decoder = decoder()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Decompress at least one byte into `buffer`; return the number of bytes, 0 at the end of the file."""
        with memoryview(buffer).cast("B") as target:
            while True:
                if self._decoder.eof:
                    data = self._next_stream()
                    if not data:
                        return 0
                    self._decoder = self._new()
                else:
                    data = self._source.read(CHUNK) if self._decoder.needs_input else b""
                    if not data and self._decoder.needs_input:
                        raise EOFError("it ends within a compressed stream")
                if text := self._decoder.decompress(data, len(target)):
                    target[: len(text)] = text
                    return len(text)

    def _next_stream(self) -> bytes:
        """Return the first bytes of the next stream, without padding; b"" if there is none."""
        rest = self._decoder.unused_data.lstrip(b"\0")
        while not rest and (more := self._source.read(CHUNK)):
            rest = more.lstrip(b"\0")
        return rest


def of_bzip2(source: IO[bytes]) -> Any:
    """Return the text of bzip2 streams."""
    return io.BufferedReader(Streams(source, bz2.BZ2Decompressor))


def of_xz(source: IO[bytes]) -> Any:
    """Return the text of xz or lzma streams."""
    return io.BufferedReader(Streams(source, lzma.LZMADecompressor))
