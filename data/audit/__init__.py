"""Check finished folders and draw their statistics."""
