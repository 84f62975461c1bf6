"""What all stages share: tasks, worker processes, the files between stages, progress."""
