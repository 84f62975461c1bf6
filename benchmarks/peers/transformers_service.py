"""A plain question-answering service on transformers and PyTorch, the peer of benchmarks/service_load.py.

    python -m benchmarks.peers.transformers_service MODEL PORT WINDOW STRIDE

It does what most small services do: a thread per request, one thread for the model (PyTorch keeps a pool of threads for
each thread that calls it), no batches but the windows of one passage. Runs in the environment of scripts/extra_venv.sh
parity, without TensorFlow.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

LONGEST = 30  # tokens of an answer


class Answering:
    """A model and its tokenizer."""

    def __init__(self, folder: str, window: int, stride: int) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
        self.window, self.stride, self.one = window, stride, ThreadPoolExecutor(1)

    @torch.inference_mode()
    def compute(self, encoded: Any) -> Any:
        """Return the logits of the windows."""
        return self.model(**encoded)

    def answer(self, question: str, context: str) -> dict[str, Any]:
        """Return the best span of the passage."""
        encoded = self.tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=self.window,
            stride=self.window - self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="longest",
            return_tensors="pt",
        )
        offsets = encoded.pop("offset_mapping")
        encoded.pop("overflow_to_sample_mapping")
        output = self.one.submit(self.compute, encoded).result()
        inside = torch.tensor([[part == 1 for part in encoded.sequence_ids(row)] for row in range(len(offsets))])
        start = output.start_logits.masked_fill(~inside, -torch.inf)
        end = output.end_logits.masked_fill(~inside, -torch.inf)
        scores = (start[:, :, None] + end[:, None, :]).triu().tril(LONGEST - 1)
        scores = scores.masked_fill(scores == 0, -torch.inf)
        best = int(scores.argmax())
        size = scores.shape[1]
        row, first, last = best // size**2, best // size % size, best % size
        begin, stop = int(offsets[row, first, 0]), int(offsets[row, last, 1])
        return {"answer": {"text": context[begin:stop], "start": begin, "end": stop}}


def main(folder: str, port: int, window: int, stride: int) -> None:
    """Serve until the process is ended."""
    answering = Answering(folder, window, stride)
    answering.answer("Who?", "Nobody.")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send({"status": "ready"})

        def do_POST(self) -> None:
            fields = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send(answering.answer(fields["question"], fields["context"]))

        def _send(self, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 1024

    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
