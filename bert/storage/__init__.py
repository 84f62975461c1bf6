"""Files and folders that are written completely or not at all."""
