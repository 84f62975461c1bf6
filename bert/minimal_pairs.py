"""Forward to extensions/minimal_pairs/minimal_pairs.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
