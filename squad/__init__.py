"""Questions answered from a passage (SQuAD 1.1 and 2.0): read, fine-tune, predict, score."""

import bert  # noqa: F401  # its guard, before TensorFlow is imported
