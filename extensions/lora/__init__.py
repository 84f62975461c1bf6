"""LoRA: low-rank updates of an encoder whose own weights stay (Hu et al. 2021)."""
