"""Questions answered from a passage (SQuAD v1.1): read, fine-tune, predict, score."""
