"""OpenVINO as an engine on CPUs, its files, and models in 8 bits."""
