"""Search by meaning: texts as passages, their vectors in an index, and the nearest ones to a question."""
