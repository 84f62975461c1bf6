"""Names of the inputs and outputs of a model as an ONNX graph, which are those of optimum's exports.

They are here so that what only reads such a model does not import onnx.
"""

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
READ = "read"  # the rows of [B*T, D] that the last layer computes
STATES = "last_hidden_state"
SENTENCE = "sentence_embedding"
