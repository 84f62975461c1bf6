"""Checks of this machine: can BERT be trained on it?

`machine` describes the machine and a finding. `gpus`, `software`, `network` and `resources` are the checks. `probe` is
a separate process that imports TensorFlow and Horovod. `__main__` is the command.
"""
