"""TensorFlow's own collectives between ranks, for machines without Horovod."""
