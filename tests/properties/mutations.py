"""Damage to a file: bytes replaced, a cut, a piece of another file, a number replaced by an extreme one."""

from collections.abc import Sequence

from hypothesis import strategies as st

EXTREMES = [b"\0", b"\xff", b"\0\0", b"\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80"]


@st.composite
def damaged(draw: st.DrawFn, whole: Sequence[bytes], pieces: Sequence[bytes] = ()) -> bytes:
    """Draw a file that one to four changes make of one of `whole`. pieces: bytes that mean something to the reader."""
    content = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["byte", "bit", "cut", "remove", "splice", "insert", "extreme"]))
        if kind == "byte":
            content = content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
        elif kind == "bit" and at < len(content):
            content = content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]
        elif kind == "cut":
            content = content[:at]
        elif kind == "remove":
            content = content[:at] + content[at + draw(st.integers(1, 100)) :]
        elif kind == "splice":
            other = draw(st.sampled_from(whole))
            begin = draw(st.integers(0, len(other)))
            content = content[:at] + other[begin : begin + draw(st.integers(1, 200))] + content[at:]
        elif kind == "insert":
            piece = draw(st.sampled_from([*pieces, b"\n", b'"', b"\x80"])) * draw(st.sampled_from([1, 2, 500]))
            content = content[:at] + piece + content[at:]
        else:
            extreme = draw(st.sampled_from(EXTREMES))
            content = content[:at] + extreme + content[at + len(extreme) :]
    return content
