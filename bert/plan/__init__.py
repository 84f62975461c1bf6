"""What a run will take, from its configuration and published measurements: time, memory, money, network, disk."""
