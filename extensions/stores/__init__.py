"""Object stores: folders and files are fetched from them and sent to them, and runs while they train."""
