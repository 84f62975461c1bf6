"""Embeddings of texts: training them by SimCSE, CoSENT and TSDAE, and their scores on STS and BEIR."""
