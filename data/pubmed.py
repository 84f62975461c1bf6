"""Forward to extensions/pubmed/pubmed.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
