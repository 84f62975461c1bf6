"""Forward to extensions/search/search.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
