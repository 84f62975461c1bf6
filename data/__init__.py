"""From raw text to training records, one stage a module, each run as `python -m data.<stage>`.

    dump.xml.bz2 --> wikipedia --+
                                 +--> documents --> shards --+--> vocab ----+
    folder of .txt --> books ----+    (sentences)            |   vocab.txt  |
                                                             +--------------+--> tfrecords --> bert.pretrain

| stage     | writes                                             | one line or record                                  |
|-----------|----------------------------------------------------|-----------------------------------------------------|
| wikipedia | `part-00000.jsonl` ...                             | {"id": "wikipedia:12", "text": "para\\npara..."}    |
| books     | `part-00000.jsonl` ...                             | {"id": "books:Emma.txt", "text": ...}               |
| documents | `part-00000.jsonl` ..., `punkt/`                   | {"id": ..., "sentences": ["...", ...]}              |
| shards    | `train-00000-of-00008.jsonl` ..., `heldout-...`    | the same; identical texts never on both sides       |
| vocab     | `vocab.txt`                                        | one WordPiece token; its line number is its id      |
| tfrecords | `train-00000-of-00008.tfrecord` ..., `heldout-...` | tf.train.Example: one masked pair of segments       |

A stage is a function of (inputs, parameters, seed): any number of workers yields the same bytes. It streams, so
memory does not grow with the corpus. Its folder appears under its final name only when whole, with a `manifest.json`
of inputs, parameters, tool versions, counts and hashes; the same command again finds it up to date. What is thrown
away is counted there by reason.

`parts` holds the line files between stages, `workers` the process pool, `progress` the line on the terminal;
`sentences` is the splitter of documents; `instances` makes BERT's training pairs and masks.
"""
