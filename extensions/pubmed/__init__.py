"""PubMed as XML: the download, the records of a file, the text of a citation, and the stage that writes documents."""
