"""The network: embeddings, encoder layers and heads, with the operations that they are made of."""
