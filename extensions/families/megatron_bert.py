"""MegatronBert in transformers: BERT whose norms precede the sub-layers.

Source: transformers (modeling_megatron_bert.py).
"""

from bert.convert.families import BERTS, TIED, Family

FAMILY = Family(
    model_type="megatron-bert",
    title="MegatronBert",
    classes="MegatronBert",
    tied=TIED,
    fixed={"norm_placement": "pre"} | BERTS,
)
