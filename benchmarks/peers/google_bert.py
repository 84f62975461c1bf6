"""google-research/bert's create_pretraining_data.py: FOLDER VOCAB TIMES CHECKOUT, run with TensorFlow 2 under its
version 1 names."""

import json
import os
import random
import resource
import sys
import time
import types


def main(folder: str, vocab: str, times: int, checkout: str) -> None:
    """Runs its instance making and writing on google.txt and prints bytes, seconds and memory."""
    import tensorflow as tf

    v1 = tf.compat.v1
    shim = types.ModuleType("tensorflow")
    shim.__dict__.update({name: getattr(v1, name) for name in dir(v1) if not name.startswith("__")})
    sys.modules["tensorflow"] = shim
    sys.path.insert(0, checkout)
    import create_pretraining_data as theirs  # type: ignore[import-not-found]
    import tokenization  # type: ignore[import-not-found]

    v1.logging.set_verbosity(v1.logging.ERROR)
    source, target = os.path.join(folder, "google.txt"), os.path.join(folder, "google.tfrecord")
    theirs.FLAGS(["", f"--input_file={source}", f"--output_file={target}", f"--vocab_file={vocab}"])
    tokenizer = tokenization.FullTokenizer(vocab_file=vocab, do_lower_case=True)
    begun = time.perf_counter()
    instances = theirs.create_training_instances([source], tokenizer, 128, times, 0.1, 0.15, 20, random.Random(12345))
    theirs.write_instance_to_example_files(instances, tokenizer, 128, 20, [target])
    seconds = time.perf_counter() - begun
    os.remove(target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"bytes": os.path.getsize(source), "seconds": seconds, "peak_mb": peak}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
