"""Forward to extensions/gpt/evaluate_lm.py."""

from bert import commands

if __name__ == "__main__":
    commands.forward()
