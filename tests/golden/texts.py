"""Help texts and refusals, by command."""

STAGES = (
    *("download", "wikipedia", "books", "pubmed", "text", "documents", "shards", "vocab", "words", "tfrecords", "bpe"),
    *("tokens", "adopt", "verify", "stats", "synthetic"),
)
COMMANDS = (
    *(f"data.{name}" for name in STAGES),
    *("bert.plan", "bert.doctor", "bert.pretrain", "bert.adapt", "bert.average", "bert.report"),
    *("bert.evaluate", "bert.fill_mask", "bert.minimal_pairs", "bert.encode", "bert.search", "bert.generate"),
    *("bert.evaluate_lm", "squad.train", "squad.predict", "squad.metric", "squad.threshold", "squad.export"),
    *("squad.report", "tasks.train", "tasks.predict", "tasks.evaluate", "tasks.thresholds"),
    *("bert.convert", "bert.export", "serve", "scripts.stages"),
    *(
        "bert.pretrain demo_phase1",
        "bert.pretrain bert_large",
        "bert.pretrain electra_small",
        "bert.pretrain gpt2_117m",
    ),
    *("bert.pretrain minilm_6x384", "squad.train squad_base", "tasks.train classify", "tasks.train embed"),
    *("tasks.train race", "tasks.train conll2003", "bert.convert import", "bert.convert export", "bert.search index"),
    *("bert.search query", "bert.export onnx", "bert.export openvino"),
)
DEMO = "bert.pretrain demo_phase1 --data.train FOLDER/nsp --run.directory FOLDER/refused --run.steps 1"
OWN = "tasks.train classify --data.train FOLDER/classes.tsv --data.text text --data.label label"
OWN += " --data.length 24 --init.checkpoint RUNS/masked_words --run.directory FOLDER/refused --run.steps 1"
ASK = (
    "squad.train squad_tiny --data.train_file FOLDER/synthetic/train.json --run.directory FOLDER/refused --run.steps 1"
)
ASK += " --windows.max_seq_length 24 --init.checkpoint RUNS/masked_words"
REFUSED = (
    # of a command's words
    *("bert.pretrain", "bert.pretrain nothing", "bert.pretrain bert_lrage", f"{DEMO} --run.stepz 5"),
    *(f"{DEMO} --run.steps five", f"{DEMO} --run.steps -1", f"{DEMO} --precision.compute int8"),
    *(f"{DEMO} --model.hidden_size 21", f"{DEMO} --batch.total 7 --batch.per_device 3"),
    *(f"{DEMO} --optimizer.name sgd", f"{DEMO} --run.keep", f"{DEMO} more", "bert.pretrain demo_phase1"),
    # settings that contradict each other, or have no effect
    *(
        f"{DEMO} --optimizer.decay_start 3",
        f"{DEMO} --model.local_window 8 --model.global_every 0",
        f"{DEMO} --model.gated true --smoke x",
    ),
    *(f"{DEMO} --distill.temperature 3", f"{DEMO} --objective.generator_width 0.5", f"{DEMO} --run.patience 2"),
    *(f"{DEMO} --parallel.tensor 2", f"{DEMO} --parallel.shard_optimizer true", f"{DEMO} --model.causal true"),
    *(f"{DEMO} --model.fused_norm true", f"{DEMO} --init.frozen_layers 9", f"{DEMO} --optimizer.ema 2"),
    *(f"{DEMO} --model.max_position_embeddings 8", f"{DEMO} --model.vocab_size 99"),
    *(
        f"{DEMO} --objective.name replaced_tokens --data.mask_shares 0 0 1",
        f"{DEMO} --batch.pack true --model.causal true",
    ),
    # folders and files that are missing or of another kind
    *("bert.pretrain demo_phase1 --data.train FOLDER/no", "bert.pretrain demo_phase1 --data.train FOLDER/shards"),
    *(
        f"{DEMO} --init.checkpoint FOLDER/no",
        f"{DEMO} --init.checkpoint FOLDER/vocab",
        f"{DEMO} --distill.teacher FOLDER/no",
    ),
    *("data.shards --source FOLDER/no --output FOLDER/x", "data.shards --source FOLDER/nsp --output FOLDER/x"),
    *(
        "data.books --source FOLDER/no --output FOLDER/x",
        "data.wikipedia --source FOLDER/classes.tsv --output FOLDER/x",
    ),
    *("data.vocab --source FOLDER/shards --output FOLDER/x --size 3", "data.vocab --output FOLDER/x"),
    "data.tfrecords --source FOLDER/shards --vocab FOLDER/no --output FOLDER/x",
    "data.tfrecords --source FOLDER/shards --vocab FOLDER/vocab/vocab.txt --output FOLDER/x --max_seq_length 4",
    "data.tfrecords --source FOLDER/shards --vocab FOLDER/vocab/vocab.txt --output FOLDER/x --single_sentences true",
    *("data.verify FOLDER/no", "data.documents --source FOLDER/nsp --output FOLDER/x", "data.text --output FOLDER/x"),
    *(
        "tasks.train",
        "tasks.train nothing",
        f"{OWN} --data.text no",
        f"{OWN} --data.label no",
        f"{OWN} --data.length 9999",
    ),
    *(
        f"{OWN} --lora.targets query",
        f"{OWN} --lora.rank 999",
        f"{OWN} --data.positive old",
        f"{OWN} --data.loss cosent",
    ),
    *(f"{OWN} --data.levels high", f"{OWN} --distill.relations 1"),
    *(f"{ASK} --windows.max_seq_length 9999", f"{ASK} --windows.doc_stride 0", f"{ASK} --data.impossible true"),
    *("squad.metric FOLDER/no FOLDER/no", "squad.predict --model FOLDER/no --dataset FOLDER/no --output FOLDER/x"),
    *("squad.predict --model RUNS/masked_words --dataset FOLDER/synthetic/dev.json --output FOLDER/x.json",),
    *("tasks.predict --model RUNS/masked_words --input FOLDER/classes.tsv --output FOLDER/x.jsonl",),
    *(
        "bert.evaluate FOLDER/no --data FOLDER/nsp",
        "bert.fill_mask FOLDER/no [MASK]",
        "bert.fill_mask RUNS/masked_words none",
    ),
    *("bert.convert import google FOLDER/no FOLDER/x", "bert.convert export nothing RUNS/masked_words FOLDER/x"),
    *(
        "bert.export onnx FOLDER/no FOLDER/x",
        "bert.plan nothing --gpu h100 --nodes 1",
        "bert.plan bert_large --gpu z80 --nodes 1",
    ),
    *("serve --model FOLDER/no", "bert.search query FOLDER/no text", "bert.average FOLDER/no"),
)
TEXTS = {f"{command} --help": f"{command} --help" for command in COMMANDS} | {
    f"refused: {line}": line for line in REFUSED
}
