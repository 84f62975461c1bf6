# From raw text to answered questions. `make help` lists the targets; each sets up what it needs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

##   WIKIPEDIA      dump (.xml, .xml.bz2), folder of its parts or wikiextractor output; en, simple, de ...: a download
##   BOOKS          folder of books, one .txt each; or pg19, which is downloaded
##   TEXT           any other text: folder of .txt, .jsonl or .parquet files, or one such file; one of the three is set
##   BERT_CONTACT   a mail address or page that downloads tell the servers
##   VOCAB          vocab.txt to use, or `train` (default) to make one of VOCAB_SIZE entries (30522)
##   LOWER_CASE     true (default) or false: what the vocabulary is for
##   SHARDS         shards of the corpus (8);  DUPE_FACTOR times each document is masked anew (5)
##   MASKED_LM_PROB share of tokens to predict (0.15);  RECORDS masked `instances` (default), or `documents` that
##                  instances are made from while reading
##   RECIPE         of bert/recipes.py: bert_mini (default) is bert_mini_phase1, then bert_mini_phase2
##   SQUAD_TRAIN    question set to fine-tune on, .json, .jsonl or compressed (.xz, .gz, .bz2);  SQUAD_DEV to answer; or
##                  squad1 or squad2, which is downloaded
##   SQUAD_RECIPE   of squad/recipes.py; PRETRAINED the run it starts from (the last phase of RECIPE)
##   NP             ranks on this machine (2);  FLAGS more flags for the training commands, and for bench
##   BERT_WORKDIR   where everything generated goes (./workdir)
##   PYTHON, VENV   the interpreter to set up with (python3), environment to make (.venv);  DEVICE gpu or cpu (found)
WIKIPEDIA    ?=
BOOKS        ?=
TEXT         ?=
VOCAB        ?= train
VOCAB_SIZE   ?= 30522
LOWER_CASE   ?= true
SHARDS       ?= 8
DUPE_FACTOR  ?= 5
MASKED_LM_PROB ?= 0.15
RECORDS      ?= instances
PHASE1_SEQ   ?= 128
PHASE2_SEQ   ?= 512
RECIPE       ?= bert_mini
PHASES       := $(or $(shell sed -nE 's/^def ($(RECIPE)(_phase[12])?)[^a-z0-9_].*/\1/p' bert/recipes.py),$(RECIPE))
SIZE         := $(word 2,$(subst _, ,$(RECIPE)))
SQUAD_TRAIN  ?=
SQUAD_DEV    ?=
SQUAD_RECIPE ?= $(if $(filter base large,$(SIZE)),squad_$(SIZE),squad_mini)
NP           ?= 2
FLAGS        ?=
BERT_WORKDIR ?= workdir
PRETRAINED   ?= $(BERT_WORKDIR)/pretrain/$(lastword $(PHASES))
SQUAD_RUN    ?= $(BERT_WORKDIR)/squad/$(RECIPE)
PYTHON       ?= python3
VENV         ?= .venv
override VENV := $(abspath $(VENV))
export TF_CPP_MIN_LOG_LEVEL ?= 2
export WIKIPEDIA BOOKS TEXT VOCAB VOCAB_SIZE LOWER_CASE SHARDS DUPE_FACTOR MASKED_LM_PROB RECORDS PHASE1_SEQ PHASE2_SEQ
export PHASES NP FLAGS BERT_WORKDIR PYTHON VENV DEVICE

# Commands run with the environment in front; set-up itself does not, it must see the machine's own Python.
IN := @PATH="$(VENV)/bin:$$PATH"
need = @[ -n "$($(1))" ] || { echo "error: $(1) is not set ; repeat as: make $@ $(1)=$(2)" >&2; exit 2; }

.PHONY: help setup doctor demo test test-all parity bench gpu-check gpu-day-prepare gpu-day lint corpus tfrecords \
	verify stats pretrain squad squad-eval clean

help: ## List the targets and variables
	@echo "Targets:"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 16
	@echo "Variables of the stages, given as make TARGET NAME=value:"
	@sed -n 's/^##//p' Makefile

setup: ## Make the virtual environment, with Horovod built for it and for DEVICE
	@scripts/setup.sh

doctor: ## Check driver, GPUs, CUDA, TensorFlow, Horovod, network, limits and disk, before and after set-up
	$(IN) $$(command -v "$(VENV)/bin/python" || echo "$(PYTHON)") -m bert.doctor

demo: setup ## The whole journey on invented text, in a few minutes on two cores
	$(IN) scripts/demo.sh

test: setup ## Run the tests
	$(IN) pytest -n 2

test-all: test ## Run the tests, and those that take long, start several ranks or break things on purpose
	$(IN) pytest -n 2 -m "(slow or faults) and not multiprocess"
	$(IN) pytest -m multiprocess

parity: setup ## Compare models that go out and come in with transformers, in an environment of its own
	$(IN) scripts/extra_venv.sh parity pytest -m parity

bench: setup ## Time training steps and inference beside transformers on PyTorch, in one run
	$(IN) scripts/extra_venv.sh parity python -m benchmarks.steps $(FLAGS)

gpu-check: setup ## Compile the programs for NVIDIA GPUs without one: memory, kernels, traffic, a roofline
	$(IN) scripts/extra_venv.sh gpu-check scripts/quiet.sh python -m benchmarks.gpu_check $(FLAGS)

gpu-day-prepare: setup ## Make what a day on a lent GPU needs: data, and the CPU's losses
	$(IN) python -m benchmarks.gpu_day prepare --output "$(BERT_WORKDIR)/gpu_day" $(FLAGS)

gpu-day: setup ## Measure on one GPU in 40 minutes, the most worth first, and write the results page
	$(IN) python -m benchmarks.gpu_day run --output "$(BERT_WORKDIR)/gpu_day" $(FLAGS)

lint: setup ## Check style, types, import directions and shell scripts
	$(IN) ruff check .
	$(IN) ruff format --check .
	$(IN) mypy
	$(IN) lint-imports --no-cache
	$(IN) shellcheck --external-sources scripts/*.sh .ci/run

corpus: setup ## WIKIPEDIA and BOOKS to sharded documents and a vocabulary
	$(IN) scripts/quiet.sh scripts/corpus.sh

tfrecords: corpus ## The corpus to masked samples of 128 and of 512 tokens
	$(IN) scripts/quiet.sh scripts/tfrecords.sh

verify: setup ## Check every file, line and record of the corpus and the samples
	$(IN) scripts/quiet.sh python -m data.verify "$(BERT_WORKDIR)/corpus" "$(BERT_WORKDIR)/tfrecords"

stats: setup ## Tables and pictures of the corpus and the samples, beside each folder
	$(IN) scripts/quiet.sh python -m data.stats "$(BERT_WORKDIR)/corpus" "$(BERT_WORKDIR)/tfrecords"

pretrain: tfrecords ## Pretrain RECIPE, phase 2 from all weights of phase 1
	$(IN) scripts/pretrain.sh

squad: setup ## Fine-tune the pretrained model on SQUAD_TRAIN
	$(call need,SQUAD_TRAIN,train.json)
	$(IN) train=$$(scripts/squad_data.sh "$(SQUAD_TRAIN)" train) && \
		scripts/launch.sh -np $(NP) -- python -m squad.train $(SQUAD_RECIPE) --data.train_file "$$train" \
		--init.checkpoint "$(PRETRAINED)" --run.directory "$(SQUAD_RUN)" $(FLAGS)

squad-eval: setup ## Answer SQUAD_DEV with the fine-tuned model and print its scores
	$(call need,SQUAD_DEV,dev.json)
	$(IN) dev=$$(scripts/squad_data.sh "$(SQUAD_DEV)" dev) && \
		scripts/quiet.sh python -m squad.predict --model "$(SQUAD_RUN)" --dataset "$$dev" \
		--output "$(SQUAD_RUN)/predictions.json" && \
		python -m squad.metric "$$dev" "$(SQUAD_RUN)/predictions.json"

clean: ## Remove caches; the work folder and the environment stay
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find bert data squad tests -name __pycache__ -prune -exec rm -rf {} +
