"""The devices of this machine: what it has, and what a process computes on."""
