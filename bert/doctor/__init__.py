"""Looks at the machine and says whether BERT can be trained on it.

`machine` says where to look and what a finding is; `gpus`, `software`, `network` and `resources` have the checks;
`probe` is the process that imports TensorFlow and Horovod; `__main__` is the command.
"""
