"""The commands whose results a change of structure must not change: data, small trainings, help texts, refusals."""

from pathlib import Path
from typing import NamedTuple

SIZES = (
    "--model.hidden_size 20 --model.num_attention_heads 5 --model.intermediate_size 28 --model.num_hidden_layers 1"
    " --model.hidden_dropout_prob 0.1 --model.attention_probs_dropout_prob 0.1"
)
FIVE = "--batch.total 6 --batch.per_device 3 --run.log_every 1 --run.steps 5 --run.evaluate_every 5"
FIVE += " --optimizer.warmup_steps 2 --precision.compute float32"
EVALUATED_ONCE = "--length.evaluations 0"  # and at the end, by run.evaluate_every
TINY = f"{SIZES} --model.max_position_embeddings 24 {FIVE}"
TEACHER = "--distill.teacher RUNS/masked_words"


class Training(NamedTuple):
    """A training of five updates."""

    command: str  # FOLDER is the folder of the data, RUNS the folder of the other trainings
    ranks: int = 1
    after: str = ""  # the training whose weights it takes


def _pretrain(data: str, more: str = "", recipe: str = "demo_phase1", tiny: str = TINY) -> str:
    return f"bert.pretrain {recipe} --data.train FOLDER/{data} {tiny} {more}".strip()


def _fine_tune(recipe: str, more: str) -> str:
    return f"tasks.train {recipe} --init.checkpoint RUNS/masked_words --data.length 24 {FIVE} {EVALUATED_ONCE} {more}"


DATA = {  # in this order; each reads what those before it wrote
    "synthetic": "data.synthetic --articles 20 --books 40 --train_questions 40 --dev_questions 9",
    "wikipedia": "data.wikipedia --source FOLDER/synthetic/wiki.xml.bz2",
    "books": "data.books --source FOLDER/synthetic/books",
    "documents": "data.documents --source FOLDER/wikipedia FOLDER/books",
    "shards": "data.shards --source FOLDER/documents --shards 2 --held_out_fraction 0.2",
    "vocab": "data.vocab --source FOLDER/shards --size 300",
    "nsp": "data.tfrecords --source FOLDER/shards --vocab FOLDER/vocab/vocab.txt --max_seq_length 24 --dupe_factor 2",
    "sop": "data.tfrecords --source FOLDER/shards --vocab FOLDER/vocab/vocab.txt --max_seq_length 24 --pairs sop"
    " --dupe_factor 1",
    "tokenized": "data.tfrecords --source FOLDER/shards --vocab FOLDER/vocab/vocab.txt --max_seq_length 24 --pairs none"
    " --kind documents",
    "bpe": "data.bpe --source FOLDER/wikipedia FOLDER/books --size 300 --heldout 0.2",
    "tokens": "data.tokens --source FOLDER/wikipedia FOLDER/books --tokenizer FOLDER/bpe --heldout 0.2",
}
TRAININGS = {
    "masked_words": Training(_pretrain("nsp")),
    "sentence_order": Training(_pretrain("sop", "--optimizer.name lamb")),
    "packed": Training(_pretrain("nsp", "--batch.pack true")),
    "masked_while_reading": Training(_pretrain("tokenized", "--optimizer.name stableadamw")),
    "replaced_tokens": Training(_pretrain("tokenized", "--objective.name replaced_tokens")),
    "causal": Training(
        f"bert.pretrain gpt2_smoke --data.train FOLDER/tokens --data.length 24 {SIZES} --model.vocab_multiple 1"
        f" --model.max_position_embeddings 24 {FIVE}"
    ),
    "distilled_words": Training(_pretrain("nsp", f"{TEACHER} --distill.weight 0.5"), after="masked_words"),
    "distilled_layers": Training(
        _pretrain("nsp", f"{TEACHER} --distill.outputs 0 --distill.hidden 1 --distill.attention 1"),
        after="masked_words",
    ),
    "low_rank": Training(
        _fine_tune(
            "classify",
            "--data.train FOLDER/classes.tsv --data.text text --data.label label --lora.rank 3 --lora.alpha 12"
            " --lora.targets query value inner outer",
        ),
        after="masked_words",
    ),
    "embeddings": Training(
        _fine_tune("embed", "--data.train FOLDER/pairs.tsv --data.text first second --data.pool mean"),
        after="masked_words",
    ),
    "questions": Training(
        f"squad.train squad_tiny --init.checkpoint RUNS/masked_words --data.train_file FOLDER/synthetic/train.json"
        f" --windows.max_seq_length 24 --windows.max_query_length 12 --windows.doc_stride 6 {FIVE} {EVALUATED_ONCE}",
        after="masked_words",
    ),
    "divided": Training(_pretrain("nsp", "--parallel.tensor 2 --model.num_attention_heads 4"), ranks=2),
    "overlapped": Training(
        _pretrain(
            "nsp",
            "--parallel.overlap true --parallel.shard_optimizer true",
            tiny=TINY.replace("per_device 3", "per_device 1"),
        ),
        ranks=2,
    ),
    "float16_sums": Training(
        _pretrain("nsp", "--precision.compute float16 --precision.compress true").replace(
            "--precision.compute float32 ", ""
        ),
        ranks=2,
    ),
}


def with_needed(names: list[str]) -> list[str]:
    """Return trainings in the order of the table, with those whose weights they take."""
    needed = {TRAININGS[name].after for name in names}
    return [name for name in TRAININGS if name in names or name in needed]


def write_tables(folder: Path) -> None:
    """Write tables to fine-tune on, of words of the synthetic books."""
    rows = [("a red house", "old"), ("the small tree by the river", "new"), ("who sold the horse?", "old")] * 5
    classes = "".join(f"{text} {n}\t{label}\n" for n, (text, label) in enumerate(rows))
    (folder / "classes.tsv").write_text(f"text\tlabel\n{classes}")
    pairs = "".join(f"{text} {n}\t{n} {text}, said Ada\n" for n, (text, _) in enumerate(rows))
    (folder / "pairs.tsv").write_text(f"first\tsecond\n{pairs}")
