"""Parse the text of an HLO module, as printed by XLA after optimisation, into computations and instructions."""

import json
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

BYTES = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "f8e4m3fn": 1,
    "f8e5m2": 1,
    "s16": 2,
    "u16": 2,
    "bf16": 2,
    "f16": 2,
    "s32": 4,
    "u32": 4,
    "f32": 4,
    "s64": 8,
    "u64": 8,
    "f64": 8,
    "c64": 8,
    "token": 0,
}

ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([\d,<= ]*)\]")
NAME = re.compile(r"%([\w.\-]+)")
COMMENT = re.compile(r"/\*.*?\*/")
HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
LINE = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*)$")
CLOSING = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True)
class Array:
    """The type and the sizes of one array."""

    dtype: str
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def bytes(self) -> int:
        return BYTES[self.dtype] * self.elements

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    """the result: one array, or the arrays of a tuple"""
    operands: tuple[str, ...]
    """names of instructions in the same computation"""
    number: int
    """index of a parameter"""
    attributes: str
    """the text after the operands, as printed"""
    root: bool

    @property
    def bytes(self) -> int:
        """Of the result."""
        return sum(array.bytes for array in self.arrays)

    def called(self, *attributes: str) -> list[str]:
        """Return the computations that these attributes name."""
        names = []
        for name in attributes:
            if match := re.search(rf"\b{name}=(\{{[^}}]*\}}|%?[\w.\-]+)", self.attributes):
                names += [part.strip(" %") for part in match[1].strip("{}").split(",")]
        return names

    def text(self, attribute: str) -> str:
        """Return the value of a quoted attribute, "" if it is absent."""
        match = re.search(rf'\b{attribute}="([^"]*)"', self.attributes)
        return match[1] if match else ""

    @cached_property
    def backend_config(self) -> dict[str, Any]:
        """Return the backend configuration of the instruction; {} if there is none."""
        begin = self.attributes.find("backend_config={")
        if begin < 0:
            return {}
        value, _ = json.JSONDecoder().raw_decode(self.attributes, begin + len("backend_config="))
        return dict(value)


@dataclass
class Computation:
    """Instructions in the order of their execution."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)

    @property
    def root(self) -> Instruction:
        return next(instruction for instruction in self.instructions.values() if instruction.root)

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Return the instructions that read each instruction's result."""
        users: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for instruction in self.instructions.values():
            for name in set(instruction.operands):
                users[name].append(instruction)
        return users

    def operand(self, instruction: Instruction, number: int) -> Instruction:
        return self.instructions[instruction.operands[number]]


@dataclass(frozen=True)
class Module:
    """A program: its computations by name, and the entry computation."""

    computations: dict[str, Computation]
    entry: str


def parse(text: str) -> Module:
    """Raises ValueError, naming the line, if a line is not as XLA prints it."""
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        if current is None:
            if head := HEAD.match(line):
                current = computations[head[2]] = Computation(head[2])
                entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        else:
            instruction = _instruction(line, number)
            current.instructions[instruction.name] = instruction
    if not entry:
        raise ValueError("no ENTRY computation; this is not an HLO module")
    return Module(computations, entry)


def arrays(text: str) -> tuple[Array, ...]:
    """Return the arrays of a printed shape; of a tuple those of its elements in order."""
    arrays = ARRAY.findall(text)
    return tuple(Array(kind, tuple(int(size) for size in sizes.split(",") if size)) for kind, sizes in arrays)


def _instruction(line: str, number: int) -> Instruction:
    match = LINE.match(COMMENT.sub("", line) if "/*" in line else line)
    if not match:
        raise ValueError(f"line {number} is not an instruction: {line[:80]}")
    rest = match[3]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else 0
    end = rest.index(" ", end)  # of the shape
    shape, rest = rest[:end], rest[end + 1 :]
    begin = rest.index("(")
    end = _closing(rest, begin)
    opcode, operands = rest[:begin], rest[begin + 1 : end]
    return Instruction(
        name=match[2],
        opcode=opcode,
        arrays=arrays(shape),
        operands=() if opcode in ("constant", "parameter") else tuple(NAME.findall(operands)),
        number=int(operands) if opcode == "parameter" else -1,
        attributes=rest[end + 1 :],
        root=bool(match[1]),
    )


def _closing(text: str, begin: int) -> int:
    """Return the position of the bracket that closes the one at `begin`."""
    opening = text[begin]
    closing, depth = CLOSING[opening], 0
    for match in re.compile(rf"[{re.escape(opening + closing)}]").finditer(text, begin):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.start()
    raise ValueError(f"unclosed {opening} in {text[begin : begin + 80]}")
