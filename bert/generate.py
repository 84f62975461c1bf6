"""Forward to extensions/gpt/generate.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
