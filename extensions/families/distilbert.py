"""DistilBERT in transformers.

Source: transformers (modeling_distilbert.py, configuration_distilbert.py).
"""

from bert.convert.families import ENCODER, EPSILON, PLAIN, Family

FAMILY = Family(
    model_type="distilbert",
    title="DistilBERT",
    classes="DistilBert",
    prefix="distilbert",
    unprefixed=("embeddings", "transformer"),
    layer="transformer.layer",
    names={
        "attention/query": "attention.q_lin",
        "attention/key": "attention.k_lin",
        "attention/value": "attention.v_lin",
        "attention/output": "attention.out_lin",
        "attention/layer_norm": "sa_layer_norm",
        "mlp/inner": "ffn.lin1",
        "mlp/outer": "ffn.lin2",
        "mlp/layer_norm": "output_layer_norm",
        "pooler": "pre_classifier",
        "masked_lm/transform": "vocab_transform",
        "masked_lm/layer_norm": "vocab_layer_norm",
        "masked_lm/bias": "vocab_projector.bias",
    },
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    supported=ENCODER,
    fixed={
        "norm_placement": "post",
        "type_vocab_size": 0,
        "pooler_act": "relu",
        "embedding_size": 0,
        EPSILON: 1e-12,
    }
    | PLAIN,
)
