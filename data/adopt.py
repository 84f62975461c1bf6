"""Forward to extensions/data_more/adopt.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
