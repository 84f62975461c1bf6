"""Forward to extensions/tokenizers/bpe.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
