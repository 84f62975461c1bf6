"""What only some corpora need: filters of documents, records of other programs, words for a vocabulary."""
