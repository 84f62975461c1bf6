"""ELECTRA in transformers: generators and discriminators.

Source: transformers (modeling_electra.py, configuration_electra.py).
"""

from bert.convert.families import ABSOLUTE, PLAIN, Family

FAMILY = Family(
    model_type="electra",
    title="ELECTRA",
    classes="Electra",
    prefix="electra",
    unprefixed=("embeddings", "embeddings_project", "encoder"),
    names={
        "masked_lm/transform": "generator_predictions.dense",
        "masked_lm/layer_norm": "generator_predictions.LayerNorm",
        "masked_lm/bias": "generator_lm_head.bias",
        "classifier": "classifier.out_proj",
        "multilabel": "classifier.out_proj",
    },
    poolers={
        "classifier": "classifier.dense",
        "multilabel": "classifier.dense",
        "choice": "sequence_summary.summary",
    },
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    supported=ABSOLUTE
    | {"hidden_act": "gelu", "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    replaced_tokens=True,
    fixed={"norm_placement": "post", "hidden_act": "gelu", "pooler_act": "gelu"} | PLAIN,
)
