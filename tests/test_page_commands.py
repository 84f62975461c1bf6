"""The commands of the pages run in order, on small data and small models; test_tutorial.py does so with the tutorial.

What they write has the permissions that the umask gives, a strict or a loose one, and nothing of what is secret.
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import page_scripts
from tests.page_scripts import Page

MADE = """
set -euo pipefail
python -m data.synthetic --output example --articles 60 --books 20 --train_questions 40 --dev_questions 11
mkdir dump && ln -s ../example/wiki.xml.bz2 dump/simplewiki-pages-articles.xml.bz2
python -m data.wikipedia --source dump --output wikipedia
python -m data.books --source example/books --output books
python -m data.documents --source wikipedia books --output documents
python -m data.shards --source documents --output shards --shards 2 --held_out_fraction 0.1
python -m data.vocab --source shards --output vocab --size 400
for length in 48 64; do
    python -m data.tfrecords --source shards --vocab vocab/vocab.txt --output seq$length --max_seq_length $length
done
python -m bert.pretrain demo_phase2 --init.checkpoint none --data.train seq64 --run.directory masked --run.steps 3 \
    --run.log_every 1
python -m bert.convert export huggingface masked folder
python -m squad.train squad_tiny --init.checkpoint masked --data.train example/train.json --run.directory answers \
    --run.steps 2
python -m tasks.train classify --data.train $PWD/classes.tsv --data.dev $PWD/classes.tsv --init.checkpoint $PWD/masked \
    --run.directory classes --length.epochs 1
python -m tasks.train tag --data.train tags.conll --data.dev tags.conll --init.checkpoint masked --run.directory tags \
    --length.epochs 1
"""
PASSAGE = "Dalworks was led by Borna. Dalworks was founded by Kalmo."
ANSWER = {"text": "Kalmo", "answer_start": PASSAGE.index("Kalmo")}
QUESTIONS = [
    {"id": "1", "question": "Who founded Dalworks?", "answers": [ANSWER], "is_impossible": False},
    {"id": "2", "question": "Who sold Dalworks?", "answers": [], "is_impossible": True},
]
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
JIGSAW = "toxic,severe_toxic,obscene,threat,insult,identity_hate"
FILES = {
    "squad2.json": json.dumps({"data": [{"title": "", "paragraphs": [{"context": PASSAGE, "qas": QUESTIONS}]}]}),
    "questions.jsonl": json.dumps({"id": "1", "question": "Who founded Dalworks?", "context": PASSAGE}) + "\n",
    "classes.tsv": "text\tlabel\n" + "a fine film\tgood\na dull film\tbad\n" * 8,
    "topics.tsv": "title\tbody\ttopic\n" + "A film\tIt is fine.\tarts\nA match\tIt was long.\tsport\n" * 8,
    "relations.tsv": "".join(f"@GENE$ blocks @CHEM$\tcpr:{n}\n@GENE$ and @CHEM$\tfalse\n" for n in (3, 4, 5, 6, 9)) * 2,
    "relations_test.tsv": "sentence\tlabel\n@GENE$ blocks @CHEM$\tcpr:3\n@GENE$ and @CHEM$\tfalse\n",
    "labels.jsonl": '{"text": "a fine film", "labels": ["good"]}\n{"text": "dull", "labels": ["bad", "short"]}\n' * 8,
    "jigsaw.csv": f"comment_text,{JIGSAW}\n" + "a fine film,0,0,0,0,0,0\nyou fool,1,1,1,1,1,1\n" * 8,
    "tags.conll": "Rain O\nin O\nParis B-LOC\n\nAnn B-PER\nLee I-PER\n\n" * 8,
    "texts.txt": "Dalworks was founded by Kalmo.\nThe Dorwing was loaded with oil.\n" * 4,
    "corpus.jsonl": '{"_id": "a", "text": "Kalmo wrote the notes."}\n{"_id": "b", "text": "Oil was loaded."}\n',
    "queries.jsonl": '{"_id": "q", "text": "who wrote the notes?"}\n',
    "qrels.tsv": "query-id\tcorpus-id\tscore\nq\ta\t1\n",
    "pairs.tsv": "anchor\tpositive\n" + "".join(f"question {n}\tanswer {n}\n" for n in range(40)),
    "scored.tsv": "sentence1\tsentence2\tscore\nit rains\tit is wet\t4\nit rains\tthe sun\t1\na cat\ta cat\t5\n",
    "stsb.csv": "".join(f"main-captions\tMSRvid\t2012test\t{n}\t{n}.5\tit rains\tit is {n}\n" for n in range(5)),
    "mrpc.tsv": MRPC + "1\t1\t2\ta man plays\tsomeone plays\n0\t3\t4\tit rains\tthe cat slept\n" * 8,
    "mrpc_test.tsv": MRPC.replace("Quality", "index") + "0\t1\t2\ta man plays\tsomeone plays\n",
    "rte.tsv": "index\tsentence1\tsentence2\tlabel\n" + "0\tit rains\tit is wet\tentailment\n"
    "1\tit rains\tit is dry\tnot_entailment\n" * 8,
    "blimp.jsonl": '{"sentence_good": "It was led by Borna.", "sentence_bad": "It were led by Borna."}\n' * 4,
    "zorro.txt": "it were led .\nit was led .\n" * 4,
}
SMALL = "--batch.total 8 --batch.per_device 4 --run.steps 2 --optimizer.warmup_steps 1"
LATER = "it is for a service that is installed elsewhere"
PAGES = [
    Page(
        "README.md",
        changes={
            "make doctor    #": "python -m bert.doctor --patience 300    #",  # also on a busy machine
            "RECIPE=bert_mini NP=2": "RECIPE=demo NP=1 SQUAD_RECIPE=squad_tiny FLAGS='--run.steps 2'",
            "RECIPE=bert_mini": "RECIPE=demo",
            "squad1": "made/example/train.json",
            "WIKIPEDIA=en BOOKS=pg19 BERT_CONTACT=you@example.org": "WIKIPEDIA=made/dump BOOKS=made/example/books "
            "BERT_WORKDIR=workdir/day",
            "RECIPE=bert_large_24h NP=1": "RECIPE=demo SQUAD_RECIPE=squad_tiny NP=1 PRETRAIN_FLAGS='--run.steps 2' "
            "SQUAD_FLAGS='--run.steps 2'",
            "workdir/squad/bert_large_24h": "workdir/day/squad/demo",
            "workdir/demo/squad/pretrained": "workdir/day/squad/demo",
        },
        left_out={
            "make setup": "it makes the environment",
            "make demo": "it is the whole demo",
            "make serve     #": "the demo has not run",
        },
        links={"enwiki-pages-articles.xml.bz2": "example/wiki.xml.bz2", "folder_of_txt": "example/books"},
        first="export VOCAB_SIZE=400 PHASE1_SEQ=48 PHASE2_SEQ=64",
    ),
    Page(
        "docs/data.md",
        changes={"--shards 64": "--shards 2", "--size 30522": "--size 400", "--size 50257": "--size 300"},
        left_out={
            "python -m data.download": "it needs a network",
            "sbatch": "it needs SLURM",
            "python -m data.documents --source ... --output ... --scheduler": "it needs hosts",
        },
        links={
            "workdir/corpus/dump": "dump",
            "my_books": "example/books",
            "THEIR_VOCAB.txt": "vocab/vocab.txt",
        },
        first="mkdir THEIR_RECORDS; cp made/seq64/*.tfrecord THEIR_RECORDS/",
    ),
    Page(
        "docs/training.md",
        changes={
            'RECIPE=bert_base NP=8 FLAGS="--batch.per_device 64"': "RECIPE=demo NP=1 FLAGS='--run.steps 2'",
            "bert.pretrain bert_base --data.train workdir/tfrecords/seq128 workdir/tfrecords/seq512": "bert.pretrain "
            "demo --run.steps 2 --data.train workdir/tfrecords/seq48 workdir/tfrecords/seq64",
            "-np 8": "-np 1",
            "bert_base_phase1 --data.train workdir/tfrecords/seq128": "demo_phase1 --run.directory launched "
            "--run.steps 2 --data.train made/seq48",
            "[workdir/tfrecords/seq128, workdir/tfrecords/seq512]": "[made/seq48, made/seq64]",
            "total: 512, per_device: 64": "total: 8, per_device: 4",
            "optimizer:": "run.steps: 2\noptimizer:\n  warmup_steps: 1",
            "phase2.run.steps: 1000": "phase2.run.steps: 3",
            "RECIPE=bert_modern_small": "RECIPE=bert_modern_small NP=1 BERT_WORKDIR=modern FLAGS='--run.steps 1 "
            "--batch.total 4 --batch.per_device 4 --run.evaluate_sequences 8 --model.num_hidden_layers 1'",
            "--config RUN/config.json": "--config made/classes/config.json",
            "DIR1 DIR2 --run.directory RUN --phase2.run.steps 1000": "made/seq48 made/seq64 --run.directory TINY "
            f"{SMALL} --phase2.run.steps 3",
            "workdir/pretrain/bert_mini_phase2": "RUN",
            "workdir/tfrecords/seq512": "made/seq64",
            "workdir/corpus/shards": "made/shards",
            "workdir/corpus/vocab": "made/vocab",
            "electra_tiny": f"electra_tiny {SMALL}",
            "--new 1000": "--new 20 --minimum 5",
            "--max_seq_length 128": "--max_seq_length 48",
            "--data.train workdir/domain/seq128": f"--data.train workdir/domain/seq128 {SMALL}",
        },
        links={"RUN": "masked", "texts.txt": "texts.txt"},
        first="export WIKIPEDIA=made/dump VOCAB_SIZE=400 PHASE1_SEQ=48 PHASE2_SEQ=64",
    ),
    Page(
        "docs/tasks.md",
        changes={
            "--data.label topic ...": "--data.label topic --init.checkpoint RUN --run.directory TOPICS",
            "dev.tsv --data.text 0": "train.tsv --data.text 0",
            "insult identity_hate ...": "insult identity_hate --init.checkpoint RUN --run.directory JIGSAW",
            "RUN --windows max --stride 64 ...": "RELATIONS --windows max --stride 9 --input test.tsv --text sentence "
            "--output windows.jsonl",
            "--data.length 256 --data.stride 128 ...": "--data.length 32 --data.stride 9 --data.train a.tsv --data.dev "
            "b.tsv --data.text body --data.label topic --init.checkpoint RUN --run.directory WINDOWS",
            'SEEDS="1 2 3 4 5"': 'SEEDS="1 2"',
            'SEEDS="1 2 3"': 'SEEDS="1 2"',
            "SQUAD_TRAIN=squad1 RECIPE=bert_mini": "SQUAD_TRAIN=train-v1.1.json RECIPE=bert_mini "
            "SQUAD_RECIPE=squad_tiny PRETRAINED=RUN FLAGS='--run.steps 2'",
            "SQUAD_DEV=squad1": "SQUAD_DEV=dev-v1.1.json",
            "squad_base": "squad_tiny",
            "--init.layers 0 2 4": "--init.layers 1",
            "SQUAD_TRAIN=squad2": "SQUAD_TRAIN=dev-v2.0.json SQUAD_RECIPE=squad_tiny PRETRAINED=RUN "
            "FLAGS='--run.steps 2'",
            "SQUAD_DEV=squad2": "SQUAD_DEV=dev-v2.0.json",
        },
        left_out=dict.fromkeys(
            ("python -m bert.pretrain minilm_6x384", "python -m bert.pretrain bert_domain"),
            "it needs the size of its teacher (tests/extensions/distillation/test_training.py)",
        ),
        links={
            "FOLDER": "folder",
            "RUN": "masked",
            "GLUE/MRPC/train.tsv": "mrpc.tsv",
            "GLUE/MRPC/dev.tsv": "mrpc.tsv",
            "GLUE/MRPC/test.tsv": "mrpc_test.tsv",
            "GLUE/RTE/train.tsv": "rte.tsv",
            "GLUE/RTE/dev.tsv": "rte.tsv",
            "a.tsv": "topics.tsv",
            "b.tsv": "topics.tsv",
            "train.tsv": "relations.tsv",
            "test.tsv": "relations_test.tsv",
            **dict.fromkeys(("a.jsonl", "b.jsonl", "dev.jsonl", "test.jsonl"), "labels.jsonl"),
            "train.csv": "jigsaw.csv",
            "train-v1.1.json": "example/train.json",
            "dev-v1.1.json": "example/dev.json",
            "train.json": "example/train.json",
            "dev.json": "example/dev.json",
            "dev-v2.0.json": "squad2.json",
            "questions.jsonl": "questions.jsonl",
        },
    ),
    Page(
        "docs/embeddings.md",
        links={
            "workdir/imported": "masked",
            "RUN": "masked",
            "pairs.tsv": "pairs.tsv",
            "sts-dev.tsv": "scored.tsv",
            "sts-test.tsv": "scored.tsv",
            "BEIR/scifact/corpus.jsonl": "corpus.jsonl",
            "BEIR/scifact/queries.jsonl": "queries.jsonl",
            "BEIR/scifact/qrels/test.tsv": "qrels.tsv",
            "texts.txt": "texts.txt",
            "SentEval/data/downstream/STSBenchmark/sts-test.csv": "stsb.csv",
            "STSBenchmark/sts-dev.csv": "stsb.csv",
        },
    ),
    Page(
        "docs/search.md",
        links={"FOLDER": "folder", "corpus.jsonl": "corpus.jsonl", "workdir/squad/mine": "answers"},
    ),
    Page(
        "docs/service.md",
        changes={
            "workdir/squad/bert_large_24h": "workdir/squad/mine",
        },
        left_out={
            "make demo": "it is the whole demo",
            "curl -d": "it is for a server that is installed elsewhere",
            **dict.fromkeys(
                (
                    "python -m bert.export openvino RUN RUN/int8",
                    "python -m serve --model RUN --engine openvino_int8",
                    "python -m bert.export openvino RUN served_openvino8",
                ),
                "it needs nncf (tests/extensions/openvino/test_openvino_files.py)",
            ),
            "from optimum": "it needs optimum (tests/parity/test_optimum.py)",
        },
        links={
            "RUN": "classes",
            "workdir/imported": "masked",
            "workdir/tasks/mrpc": "classes",
            "SQUAD_RUN": "answers",
            "workdir/squad/mine": "answers",
            "workdir/tasks/conll2003": "tags",
        },
        first="python -m bert.search index made/corpus.jsonl library --model made/masked",
    ),
    Page(
        "docs/models.md",
        changes={
            "squad_base --init.checkpoint workdir/imported --data.train_file train-v1.1.json": "squad_tiny "
            "--init.checkpoint workdir/imported --data.train_file made/example/train.json --run.steps 2",
            "workdir/squad/bert_mini FOLDER": "made/answers EXPORTED",
        },
        left_out=dict.fromkeys(
            (
                "python -m bert.convert import huggingface roberta-base",
                "python -m bert.fill_mask workdir/roberta",
                "python -m tasks.train mrpc --init.checkpoint workdir/roberta",
                "python -m squad.train squad_base --init.checkpoint workdir/roberta",
                "python -m bert.convert import huggingface ModernBERT-base",
                "python -m data.tfrecords --source workdir/corpus/shards --vocab workdir/modern/tokenizer.json",
                "python -m bert.pretrain bert_domain --init.checkpoint workdir/modern",
                "python -m tasks.train mrpc --init.checkpoint workdir/modern",
                "python -m bert.convert import huggingface NeoBERT",
                "python -m tasks.train mrpc --init.checkpoint workdir/neobert",
            ),
            "it needs published weights",
        ),
        links={"FOLDER": "folder", "texts.txt": "texts.txt"},
    ),
    Page(
        "docs/causal.md",
        changes={
            "gpt2_117m --data.train": "gpt2_smoke --run.steps 2 --data.train",
            "gpt2_117m": "gpt2_smoke",
            "--size 50257": "--size 300",
            "-np 8": "-np 1",
            "--top_k 40": "--top_k 40 --max_tokens 5",
        },
        links={"workdir/corpus/dump": "dump"},
    ),
    Page(
        "docs/minimal_pairs.md",
        links={
            "RUN": "masked",
            "blimp/data/one.jsonl": "blimp.jsonl",
            "Zorro/sentences/babyberta/one.txt": "zorro.txt",
        },
    ),
    Page("docs/planning.md", links={"RUN": "masked"}),
    Page(
        "docs/python.md",
        changes={
            "workdir/squad/bert_mini": "made/answers",
            "tagger.tag": "tagger = bert.load('made/tags')\ntagger.tag",
            "model.answer([": "import bert\nmodel = bert.load('made/answers')\nmodel.answer([",
            '"train.tsv"': '"made/classes.tsv"',
            '"dev.tsv"': '"made/classes.tsv"',
            '"workdir/pretrain/bert_mini"': '"made/masked", "run.directory": "CLASSES"',
            "settings = {": "import bert\nsettings = {",
            "config = bert.recipe": "import bert, dataclasses\n"
            'settings = {"data.train": "made/classes.tsv", "data.dev": "made/classes.tsv"}\n'
            'settings |= {"init.checkpoint": "made/masked", "run.directory": "LONGER"}\nconfig = bert.recipe',
            "bert_mini --data.train DIR1 DIR2": f"bert_tiny {SMALL} --data.train made/seq48 made/seq64",
            "--model RUN ...": '--model made/answers --question "Who slept?" --context "The cat slept."',
        },
    ),
]
SECRET = "s3cr3t-of-this-test"
SECRETS = dict.fromkeys(("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "BERT_API_KEY", "HOROVOD_PASSWORD"), SECRET)


@contextlib.contextmanager
def no_process_shows_it() -> Iterator[None]:
    """Fail if a process of this machine has the secret on its command line while the block runs."""
    done, shown = threading.Event(), list[str]()

    def look() -> None:
        while not done.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if SECRET.encode() in (words := path.read_bytes()):
                        shown.append(words.decode())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not shown


def written(folder: Path) -> Iterator[Path]:
    """The files and folders of a work folder that are no links."""
    return (path for path in folder.rglob("*") if not path.is_symlink())


def other_permissions(folder: Path, umask: int) -> list[str]:
    """What others may read or write more, or less, than the umask says; some is private whatever it says."""
    found = []
    for path in written(folder):
        private = path.parent.name == "logs" or path.match("cache/openvino")
        mode = path.stat().st_mode & 0o777
        if mode != (0o777 if path.is_dir() else 0o666) & ~(0o077 if private else umask):
            found.append(f"{path} {mode:o}")
    return found


def check_files(folder: Path, umask: int) -> None:
    """Check permissions and contents."""
    assert not other_permissions(folder, umask)
    assert not [path for path in written(folder) if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small data, runs and files for the pages."""
    folder = tmp_path_factory.mktemp("made")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    folder.chmod(0o777)
    for path in folder.iterdir():
        path.chmod(0o666)
    with no_process_shows_it():
        done = page_scripts.execute(MADE, folder, SECRETS, umask=0)
    assert done.returncode == 0, done.stderr[-3000:]
    check_files(folder, 0)
    return folder


NAMES = [Path(page.name).stem for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_what_is_changed_and_left_out_is_in_the_page(page: Page) -> None:
    assert "+ " in page_scripts.script(page)  # which raises if not


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_commands_of_a_page_run_in_order(page: Page, made: Path, tmp_path: Path) -> None:
    with no_process_shows_it():
        done = page_scripts.run(page, tmp_path, made, SECRETS)
    assert done.returncode == 0, page_scripts.failures(done.stderr)
    check_files(tmp_path, 0o077)
