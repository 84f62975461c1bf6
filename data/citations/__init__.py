"""PubMed as XML: the records of a file, and the text of a citation."""
