"""From raw text to training records, one stage a module, each run as `python -m data.<stage>`.

    download --> wikipedia ---+
      dump.xml.bz2            |
    download --> books -------+--> documents --> shards --+--> vocab ----+
      folder of .txt          |    (sentences)            |   vocab.txt  |
    anything --> text --------+                           +--------------+--> tfrecords --> bert.pretrain
      .txt .jsonl .parquet

| stage     | writes                                             | one line or record                                  |
|-----------|----------------------------------------------------|-----------------------------------------------------|
| download  | files as published, checked                        | the publisher's own                                 |
| wikipedia | `part-00000.jsonl` ...                             | {"id": "wikipedia:12", "text": "para\\npara..."}    |
| books     | `part-00000.jsonl` ...                             | {"id": "books:Emma.txt", "text": ...}               |
| text      | `part-00000.jsonl` ...                             | {"id": "text:notes.txt", "text": ...}               |
| documents | `part-00000.jsonl` ..., `punkt/`                   | {"id": ..., "sentences": ["...", ...]}              |
| shards    | `train-00000-of-00008.jsonl` ..., `heldout-...`    | the same; identical texts never on both sides       |
| vocab     | `vocab.txt`                                        | one WordPiece token; its line number is its id      |
| tfrecords | `train-00000-of-00008.tfrecord` ..., `heldout-...` | tf.train.Example: a masked pair, or a chunk       |

A stage is a function of (inputs, parameters, seed): any number of workers yields the same bytes. It streams, so
memory does not grow with the corpus. Its folder appears under its final name only when whole, with a `manifest.json`
of inputs, parameters, tool versions, counts and hashes; the same command again finds it up to date. What is thrown
away is counted there by reason.

`verify` checks any finished folder, `stats` says what is in it.

`parts` holds the line files between stages; `tasks` makes a stage of many parts in several sittings, `workers` says by
whom; `progress` is the line on the terminal. Of the modules that are no stage, `sources` serves those that read text,
`dump` and `extractor` serve wikipedia, `sentences` and `punkt` documents, `transfer`, `connection`, `partial`,
`incoming`, `wikimedia`, `catalog` and `archives` download, `checks` and `frames` verify, `charts` stats, `grammar`
synthetic.
"""
