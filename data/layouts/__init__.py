"""How files hold texts: `LAYOUTS` of data/text.py names the reader of each suffix."""
