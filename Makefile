# From raw text to answered questions. `make help` lists the targets; each sets up what it needs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

##   WIKIPEDIA      dump (.xml, .xml.bz2), folder of its parts or wikiextractor output; en, simple, de ...: a download
##   BOOKS          folder of books, one .txt each; or pg19, which is downloaded
##   PUBMED         files of PubMed (.xml.gz) or their folder; or a year such as 2026, whose baseline is downloaded
##   TEXT           any other text: folder of .txt, .jsonl or .parquet files, or one such file; one of the four is set
##   BERT_CONTACT   a mail address or page that downloads tell the servers
##   VOCAB          vocab.txt to use, or `train` (default) to train one of VOCAB_SIZE entries (30522)
##   LOWER_CASE     false for a cased vocabulary
##   SHARDS         shards of the corpus (default: by its size and the cores)
##   DUPE_FACTOR    times that each document is masked;  MASKED_LM_PROB  share of tokens to predict
##   RECORDS        `instances`, masked now, or `documents`, masked while reading
##                  (the defaults of these four: python -m data.tfrecords --help)
##   BPE            for causal models: folder of GPT-2's vocab.json and merges.txt, or `train` (default) to train a
##                  byte-level BPE of BPE_SIZE tokens (50257);  HELDOUT  share of the documents to hold out from tokens
##   RECIPE         of bert/recipes.py: bert_mini (default) is bert_mini_phase1, then bert_mini_phase2
##   SQUAD_TRAIN    question set to fine-tune on, .json, .jsonl or compressed (.xz, .gz, .bz2);  SQUAD_DEV to answer; or
##                  squad1 or squad2, which is downloaded
##   SQUAD_RECIPE   of squad/recipes.py;  SQUAD_RUN  its run directory
##   GLUE           folder of GLUE's tasks, or of TASK alone: cola sst2 mrpc qqp stsb mnli qnli rte wnli
##   RACE, NER      folder of RACE; folder with CoNLL-2003's eng.train, eng.testa, eng.testb
##   TASK_RUN       run directory of glue, race and ner
##   MODEL          run directory to serve (default: SQUAD_RUN, or that of RECIPE, or the demo's)
##   PRETRAINED     run or import to fine-tune (default: the last phase of RECIPE, pretrained first if need be)
##   NP             ranks on this machine (2);  FLAGS  more flags for the command of the target
##   PRETRAIN_FLAGS more flags for pretraining where another target implies it
##   BERT_WORKDIR   where everything generated goes (./workdir)
##   PYTHON, VENV   the interpreter to set up with (python3), environment to make (.venv);  DEVICE gpu or cpu (detected)
##
## Each value is taken as it stands: make expands no $ in it, and no shell reads it. Only the shell in which you type
## needs quotes: make corpus BOOKS='my $ books'. FLAGS is a list of words, separated by spaces. Quotes and backslashes
## in it group as in a shell, and nothing is expanded: FLAGS='--run.seed 7 --data.vocab "my words.txt"'. Give values as
## NAME=value, or in the environment: NAME:=value and NAME!=value ask make itself to expand or run them.
VARIABLES := WIKIPEDIA BOOKS PUBMED TEXT BERT_CONTACT VOCAB VOCAB_SIZE LOWER_CASE BPE BPE_SIZE HELDOUT SHARDS \
	DUPE_FACTOR MASKED_LM_PROB RECORDS PHASE1_SEQ PHASE2_SEQ RECIPE SQUAD_TRAIN SQUAD_DEV SQUAD_RECIPE \
	SQUAD_RUN GLUE TASK RACE NER TASK_RUN MODEL PRETRAINED NP FLAGS PRETRAIN_FLAGS SQUAD_FLAGS TASK_FLAGS \
	BERT_WORKDIR PYTHON VENV DEVICE

# make would expand $(...) in values from its command line when it exports them, and in values from the environment when
# a rule here uses them. So each value is replaced by its own text, and recipes use "$$NAME", never $(NAME).
define as_text
override export $(1) := $$(value $(1))
endef
given = $(filter command environment,$(firstword $(origin $(1))))
$(foreach name,$(.VARIABLES),$(if $(filter command,$(call given,$(name))),$(eval $(call as_text,$(name)))))
$(foreach name,$(VARIABLES),$(if $(call given,$(name)),$(eval $(call as_text,$(name)))))

PRETRAIN_FLAGS ?= $(if $(filter pretrain,$(MAKECMDGOALS)),$(FLAGS))
SQUAD_FLAGS  ?= $(if $(filter squad squad-eval,$(MAKECMDGOALS)),$(FLAGS))
TASK_FLAGS   ?= $(if $(filter glue race ner,$(MAKECMDGOALS)),$(FLAGS))
export $(VARIABLES)
export TF_CPP_MIN_LOG_LEVEL ?= 2

# Commands run with the variables' defaults and the environment in front; set-up itself does not, it must see the
# machine's own Python.
IN := @. scripts/variables.sh &&
FLAGGED := scripts/launcher.sh with-flags FLAGS

.PHONY: help setup doctor demo test test-all soak parity bench gpu-check gpu-day-prepare gpu-day lock audit lint \
	download wikipedia books text pubmed documents shards vocab corpus tfrecords bpe tokens verify stats \
	pretrain squad squad-eval glue race ner serve clean

help: ## List the targets and variables
	@echo "Targets:"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 16
	@echo "Variables of the stages, given as make TARGET NAME=value:"
	@sed -n 's/^##//p' Makefile

setup: ## Make the virtual environment, with Horovod built for it and for DEVICE
	@scripts/setup.sh

doctor: ## Check driver, GPUs, CUDA, TensorFlow, Horovod, network, limits and disk, before and after set-up
	$(IN) "$$(command -v "$$VENV/bin/python" || echo "$$PYTHON")" -m bert.doctor

demo: setup ## The whole journey on invented text, in a few minutes on two cores
	$(IN) scripts/demo.sh

test: setup ## Run the tests
	$(IN) pytest -n 2

test-all: test ## Run the tests, and those that take long, start several ranks or break things on purpose
	$(IN) pytest -n 2 -m "(slow or faults) and not multiprocess"
	$(IN) pytest -m multiprocess

soak: setup ## Train and prepare data for 20 minutes under random faults; compare with undisturbed results
	$(IN) $(FLAGGED) scripts/launcher.sh quiet python -m tests.soak

parity: setup ## Compare models that go out and come in with transformers, in an environment of its own
	$(IN) scripts/extra_venv.sh parity pytest -m parity

bench: setup ## Time training steps and inference beside transformers on PyTorch, in one run
	$(IN) $(FLAGGED) scripts/extra_venv.sh parity python -m benchmarks.steps

gpu-check: setup ## Compile the programs for NVIDIA GPUs without one: memory, kernels, traffic, a roofline
	$(IN) $(FLAGGED) scripts/extra_venv.sh gpu-check scripts/launcher.sh quiet python -m benchmarks.gpu_check

gpu-day-prepare: setup ## Make what a day on a lent GPU needs: data, and the CPU's losses
	$(IN) $(FLAGGED) python -m benchmarks.gpu_day prepare --output "$$BERT_WORKDIR/gpu_day"

gpu-day: setup ## Measure on one GPU in 40 minutes, the most worth first, and write the results page
	$(IN) $(FLAGGED) python -m benchmarks.gpu_day run --output "$$BERT_WORKDIR/gpu_day"

lock: ## Lock all packages with their hashes, after a change of requirements*.txt
	$(IN) scripts/lock.sh

audit: ## Compare all locked packages with the published advisories; needs a network
	$(IN) scripts/audit.sh

lint: setup ## Check style, types, import directions and shell scripts
	$(IN) ruff check .
	$(IN) ruff format --check .
	$(IN) mypy
	$(IN) lint-imports --no-cache
	$(IN) shellcheck --external-sources scripts/*.sh .ci/run

# Each stage implies those before it. A stage that is finished and unchanged returns at once.
download: setup ## Fetch what WIKIPEDIA, BOOKS, PUBMED, SQUAD_TRAIN and SQUAD_DEV name
wikipedia: download ## Extract the articles of WIKIPEDIA
books: download ## Read BOOKS
text: download ## Read TEXT
pubmed: download ## Read PUBMED
documents: wikipedia books text pubmed ## Split all of it into sentences
shards: documents ## Shuffle the documents into shards, some of them held out
vocab: shards ## Train a vocabulary on the shards, or take VOCAB
corpus: vocab ## All of the above: sharded documents and a vocabulary
tfrecords: vocab ## Masked samples of 128 and of 512 tokens
bpe: wikipedia books text pubmed ## For causal models: train a byte-level BPE on the texts, or take BPE
tokens: bpe ## The texts as tokens of that BPE, in one stream
verify: tfrecords ## Check every file, line and record of the corpus, the samples and the tokens
stats: tfrecords ## Tables and pictures of the corpus, the samples and the tokens, beside each folder
download wikipedia books text pubmed documents shards vocab tfrecords bpe tokens verify stats:
	$(IN) scripts/launcher.sh quiet scripts/data.sh $@

# Recipes of causal models are named gpt2_...: they read tokens, the others masked samples.
samples := $(if $(filter gpt2_%,$(value RECIPE)),tokens,tfrecords)
pretrain: check-pretrain $(samples) ## Pretrain RECIPE, phase 2 from all weights of phase 1
squad: check-squad download ## Fine-tune PRETRAINED, or else RECIPE after pretraining, on SQUAD_TRAIN
squad-eval: check-squad-eval download ## Answer SQUAD_DEV with the fine-tuned model and print its scores
glue: check-glue setup ## Fine-tune PRETRAINED, or else RECIPE after pretraining, on TASK of GLUE; print the scores
race: check-race setup ## The same on RACE, multiple choice
ner: check-ner setup ## The same on NER, the tagging of names
squad glue race ner: $(filter pretrain,$(MAKECMDGOALS))
squad-eval: $(if $(SQUAD_TRAIN),squad)
# A finished pretraining run is used as it is, whatever its flags and data were. So is a fine-tuned model where
# SQUAD_TRAIN is not set.
squad glue race ner:
	$(IN) if ! scripts/train.sh is-pretrained; then $(MAKE) --no-print-directory -o setup -o download pretrain; fi
	$(IN) scripts/train.sh $@
pretrain squad-eval:
	$(IN) scripts/train.sh $@
check-pretrain check-squad check-squad-eval check-glue check-race check-ner: # before hours are spent
	$(IN) scripts/train.sh $@

serve: setup ## Answer over HTTP with MODEL, and on a web page; FLAGS as of python -m serve
	$(IN) scripts/serve.sh

clean: ## Remove caches; the work folder and the environment stay
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find bert data squad tasks serve scripts tests -name __pycache__ -prune -exec rm -rf {} +
