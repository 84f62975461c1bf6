"""Programs that start things."""
