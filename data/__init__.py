"""From raw text to training records: each module is one stage, run as `python -m data.<stage>`.

    download --> wikipedia ---+
      dump.xml.bz2            |
    download --> books -------+--> documents --> shards --+--> vocab ----+
      folder of .txt          |    (sentences)            |   vocab.txt  |
    download --> pubmed ------+                           +--------------+--> tfrecords --> bert.pretrain
      .xml.gz of NLM          |
    anything --> text --------+
      .txt .jsonl .parquet

    sources as above --------+--> bpe ----------+
                             |   tokenizer.json |
                             +------------------+--> tokens --> bert.pretrain, causal models

| stage     | writes                                             | one line or record                                  |
|-----------|----------------------------------------------------|-----------------------------------------------------|
| download  | the published files, checked                       | in the publisher's format                           |
| wikipedia | `part-00000.jsonl` ...                             | {"id": "wikipedia:12", "text": "para\\npara..."}    |
| books     | `part-00000.jsonl` ...                             | {"id": "books:Emma.txt", "text": ...}               |
| pubmed    | `part-00000.jsonl` ...                             | {"id": "pubmed:31452104", "text": ...}              |
| text      | `part-00000.jsonl` ...                             | {"id": "text:notes.txt", "text": ...}               |
| documents | `part-00000.jsonl` ..., `punkt/`                   | {"id": ..., "sentences": ["...", ...]}              |
| shards    | `train-00000-of-00008.jsonl` ..., `heldout-...`    | the same; a held-out text is never trained on       |
| vocab     | `vocab.txt`                                        | one WordPiece token; its line number is its id      |
| words     | `words.txt`, `words.tsv`                           | a word that a trained model's vocabulary splits     |
| tfrecords | `train-00000-of-00008.tfrecord` ..., `heldout-...` | tf.train.Example: a masked instance, or a chunk     |
| bpe       | `tokenizer.json`                                   | a byte-level BPE: vocabulary and merges             |
| tokens    | `train-00000.tokens` ..., `heldout-...`            | the id of a token, 16 or 32 bits                    |

The output of a stage depends only on its inputs, parameters and seed: any number of workers gives the same bytes. A
stage streams its input, so memory does not grow with the corpus. Its output folder appears under its final name only
when it is complete, with a `manifest.json` of inputs, parameters, tool versions, counts and hashes. The same command
again finds it up to date. Whatever is dropped is counted in the manifest, by reason.

`verify` checks any finished folder, `stats` describes its content, and `synthetic` generates a small corpus. The
packages serve the stages: `fetch` download, `wiki` wikipedia, `splitting` documents, `audit` verify and stats, and
`pipeline` all of them. docs/data.md describes every stage, its flags and its files.
"""

import bert  # noqa: F401  # its guard, before TensorFlow is imported
