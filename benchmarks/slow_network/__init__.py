"""Several ranks over a link of a given rate and delay, all on one machine."""
