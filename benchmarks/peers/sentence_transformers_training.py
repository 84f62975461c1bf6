"""Training of embeddings as users of sentence-transformers write it, for docs/results/2026-11-embeddings.md.

    pip install "sentence-transformers[train]==6.2.0"
    python -m benchmarks.peers.sentence_transformers_training START TEXTS OUTPUT [--loss cosent] [--seed 1] ...

START is the exported model that both sides start from. TEXTS has a text on each line, which is paired with itself
(SimCSE), or with --loss cosent two texts and their score, separated by tabs. All else is done by sentence-transformers:
its Trainer with a linear schedule, AdamW of torch, gradients clipped at 1. Writes the model to OUTPUT, and prints the
processor time of training in seconds. Imports nothing of ours.
"""

import argparse
import time
from pathlib import Path

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses, modules


def read(path: Path, scored: bool) -> Dataset:
    """Return the columns of a file of texts, or of pairs with their score."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if not scored:
        return Dataset.from_dict({"anchor": lines, "positive": lines})
    first, second, score = zip(*(line.split("\t") for line in lines), strict=True)
    return Dataset.from_dict({"first": first, "second": second, "score": [float(value) for value in score]})


def train(options: argparse.Namespace) -> float:
    """Train, write the model and return the processor time of training in seconds."""
    transformer = modules.Transformer(str(options.start), max_seq_length=options.length)
    pooling = modules.Pooling(transformer.get_embedding_dimension(), options.pool)
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    kinds = {"contrastive": losses.MultipleNegativesRankingLoss, "cosent": losses.CoSENTLoss}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=f"{options.output}.trainer",
        use_cpu=True,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch,
        learning_rate=options.rate,
        lr_scheduler_type="linear",
        warmup_ratio=options.warmup,
        weight_decay=0.0,
        max_grad_norm=1.0,
        seed=options.seed,
        save_strategy="no",
        report_to="none",
        logging_steps=50,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=read(options.texts, options.loss == "cosent"),
        loss=kinds[options.loss](model, scale=1 / options.temperature),
    )
    begin = time.process_time()
    trainer.train()
    took = time.process_time() - begin
    model.save(str(options.output))
    return took


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("start", "texts", "output"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--loss", choices=("contrastive", "cosent"), default="contrastive")
    parser.add_argument("--pool", choices=("mean", "cls", "max"), default="mean")
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--warmup", type=float, default=0.0)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    print(f"{train(parser.parse_args()):.0f}")


if __name__ == "__main__":
    main()
