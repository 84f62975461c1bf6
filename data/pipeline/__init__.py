"""What all stages share: the Stage class, worker processes, the files between stages, progress."""
