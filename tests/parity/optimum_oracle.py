"""What optimum, transformers and sentence-transformers make of an export; run by test_optimum.py.

    python optimum_oracle.py < jobs.json > results.json    # [[function, argument, ...], ...], all in one process

piped(task, class, folder, texts)    what a pipeline answers for each text, with the scores of all classes
computed(class, folder, texts)       the inputs that its tokenizer makes and each output, as lists
chosen(folder, questions)            the logits of each choice of questions, which are lists of pairs of texts
embedded(backend, folder, texts)     the embeddings by sentence-transformers with one of its backends: onnx, openvino
"""

import json
import sys
from typing import Any

import optimum.onnxruntime
import sentence_transformers
import torch
import transformers

FLOAT32: dict[str, Any] = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}


def piped(task: str, kind: str, folder: str, texts: list[str]) -> Any:
    """Labels and scores."""
    model = getattr(optimum.onnxruntime, kind).from_pretrained(folder)
    pipeline = transformers.pipeline(task, model=model, tokenizer=transformers.AutoTokenizer.from_pretrained(folder))
    every: dict[str, Any] = {"top_k": None} if task == "text-classification" else {"ignore_labels": []}
    return [pipeline(text, **every) for text in texts]


def computed(kind: str, folder: str, texts: list[str]) -> list[dict[str, Any]]:
    """As a GPU does it: into buffers whose sizes are those that the file states."""
    model = getattr(optimum.onnxruntime, kind).from_pretrained(folder, use_io_binding=True)
    given = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    found = model(**given)
    outputs = {name: value.tolist() for name, value in found.items() if isinstance(value, torch.Tensor)}
    return [{name: value.tolist() for name, value in given.items()}, outputs]


def chosen(folder: str, questions: list[list[list[str]]]) -> Any:
    """With all pairs of one length, as transformers' collator for multiple choice makes them."""
    model = optimum.onnxruntime.ORTModelForMultipleChoice.from_pretrained(folder, use_io_binding=True)
    flat = [pair for pairs in questions for pair in pairs]
    given = transformers.AutoTokenizer.from_pretrained(folder)(flat, padding=True, return_tensors="pt")
    return model(**{name: x.view(len(questions), -1, x.shape[1]) for name, x in given.items()}).logits.tolist()


def embedded(backend: str, folder: str, texts: list[str]) -> Any:
    """As a user loads the folder. In float32 also on a processor with bfloat16."""
    settings: dict[str, Any] = {"provider": "CPUExecutionProvider"} if backend == "onnx" else FLOAT32
    model = sentence_transformers.SentenceTransformer(folder, device="cpu", backend=backend, model_kwargs=settings)
    return model.encode(texts).tolist()


if __name__ == "__main__":
    jobs: dict[str, Any] = {function.__name__: function for function in (piped, computed, chosen, embedded)}
    answers = [jobs[name](*arguments) for name, *arguments in json.load(sys.stdin)]
    json.dump(answers, sys.stdout, default=float)
