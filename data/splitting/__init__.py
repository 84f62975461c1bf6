"""Split text into sentences."""
