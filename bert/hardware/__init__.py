"""The devices of this machine, and the choice of the one that a process computes on."""
