"""Forward to extensions/data_more/words.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
