"""Hours, disk and memory of data preparation, from the measured rates of its stages.

The rates are of docs/results/2026-11-data-preparation.md, one process on one core of a server of 2026.
"""

import math
from dataclasses import dataclass

EXTRACTION = 2.5e6  # bytes of text a second and core, from a dump of Wikipedia
SHARDS = 246e6 / 2  # bytes of JSON lines a second, two passes of one process
DOCUMENTS = 8.8e6  # bytes of text a second and core, into tokenised documents
INSTANCES = 2.7e6  # the same, into masked instances, each text used FACTOR times
FACTOR = 5
JSON = 1.14  # bytes of JSON lines for a byte of text: 36,000 MB of 31,500
DUMP = 1.25  # bytes of a compressed dump for a byte of its text: 25 GB of 20
STAGES = 4  # folders of JSON lines: extracted, documents, shards, and one more while a stage writes
INSTANCE_BYTES = 2.5 * FACTOR  # of TFRecords for a byte of text
TOKEN_BYTES = 0.6  # of tokenised documents for a byte of text: two bytes a token of some four characters, and framing
WORKER_MEMORY = 0.92e9  # bytes of a process


@dataclass(frozen=True)
class Preparation:
    """What making the data takes."""

    text: float  # bytes
    cores: int
    hours: float
    disk: float  # bytes
    memory: float  # bytes

    @classmethod
    def of(cls, text: float, cores: int, phases: int, instances: bool) -> "Preparation":
        """Return the preparation of `text` bytes for `phases` lengths of sequences.

        instances: masked in advance; otherwise tokenised documents, masked anew while training reads them.
        """
        rate, size = (INSTANCES, INSTANCE_BYTES) if instances else (DOCUMENTS, TOKEN_BYTES)
        spread = text / cores
        seconds = spread / EXTRACTION + JSON * text / SHARDS + phases * spread / rate
        return cls(
            text=text,
            cores=cores,
            hours=seconds / 3600,
            disk=text * (DUMP + STAGES * JSON + phases * size),
            memory=math.ceil(cores * WORKER_MEMORY),
        )
