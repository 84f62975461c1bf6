"""Wikipedia dumps: reading their XML and extracting the text of articles."""
