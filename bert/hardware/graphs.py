"""How Python functions become TensorFlow graphs."""

import functools

import tensorflow as tf

# AutoGraph would first rewrite the source of all that a function calls, so that `if` and `for` may depend on tensors.
# Nothing here needs that, and it took a third of the CPU time that a process needs until its first update.
function = functools.partial(tf.function, autograph=False)
"""`tf.function`, with its arguments, that runs the Python as it is written."""
