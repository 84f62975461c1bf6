"""A contender that computes nothing: stand_in.py KIND SECONDS; KIND is agrees, differs, dies or fails."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter, batch_file

TURNS = Path(os.environ["STAND_IN_TURNS"])


class StandIn:
    """Notes in a file when it works."""

    def __init__(self, kind: str, seconds: float) -> None:
        self.kind, self.seconds = kind, seconds

    def export(self, model: dict[str, int], work: str, weights: str) -> adapter.Answer:
        return {}

    def setup(self, work: str, weights: str, inputs: str, compute: str, dropout: float) -> adapter.Answer:
        print("libraries print where they like")
        if self.kind == "fails":
            raise ValueError("no such\nweights")
        batches = batch_file.load(inputs)
        shapes = [[*batch["input_ids"].shape, 0] for batch in batches]
        return {"shapes": shapes, "threads": 3, "versions": {self.kind: "1.5"}}

    def values(self) -> adapter.Answer:
        return {"values": [7.0, 5.0, 3.0 * (1.0002 if self.kind == "differs" else 1.00005)]}

    def lap(self, laps: int) -> adapter.Answer:
        if self.kind == "dies":
            print("Segmentation fault of sorts", file=sys.stderr)
            os._exit(17)
        with open(TURNS, "a") as stream:
            stream.write(f"{self.seconds} begins\n")
            stream.flush()
            time.sleep(0.02)
            stream.write(f"{self.seconds} ends\n")
        return {"seconds": [self.seconds] * laps, "peak_mb": 1234.0}  # as of a GPU

    def peak(self) -> adapter.Answer:
        return {"flops": 1e12}


if __name__ == "__main__":
    adapter.serve(StandIn(sys.argv[1], float(sys.argv[2])))
