"""The families of weights of transformers, besides BERT: a row of `bert.convert.families.FAMILIES` each."""
