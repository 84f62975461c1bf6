# From raw text to answered questions. `make help` lists the targets, and the variables at the end of this file.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := bash
RUN := @scripts/launcher.sh in-venv
RUN_WITH_FLAGS := @scripts/launcher.sh with-flags FLAGS
STAGE := @scripts/launcher.sh quiet python -m scripts.stages

.PHONY: help setup doctor demo download wikipedia books text pubmed documents shards vocab corpus tfrecords bpe tokens \
	verify stats pretrain squad squad-eval glue race ner serve test test-all soak parity bench gpu-check \
	gpu-day-prepare gpu-day lint lock audit clean

help: ## List the targets and variables
	@echo "Targets:"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 16
	@echo "Variables of the stages, given as make TARGET NAME=value:"
	@sed -n 's/^##//p' Makefile

setup: ## Make the virtual environment, with Horovod built for it and for DEVICE
	@scripts/setup.sh

doctor: ## Check driver, GPUs, CUDA, TensorFlow, Horovod, network, limits and disk, before and after set-up
	@"$$(command -v "$${VENV:-.venv}/bin/python" || echo "$${PYTHON:-python3}")" -m bert.doctor

demo: setup ## The whole journey on invented text, in a few minutes on two cores
	$(RUN) scripts/demo.sh

# Stages: scripts/stages.py says what each runs and which stages it needs. One that is finished and unchanged returns at
# once. `python -m scripts.stages --dry_run STAGE` shows the commands.

download: setup ## Fetch what WIKIPEDIA, BOOKS, PUBMED, SQUAD_TRAIN and SQUAD_DEV name
	$(STAGE) download
wikipedia: setup ## Extract the articles of WIKIPEDIA
	$(STAGE) wikipedia
books: setup ## Read BOOKS
	$(STAGE) books
text: setup ## Read TEXT
	$(STAGE) text
pubmed: setup ## Read PUBMED
	$(STAGE) pubmed
documents: setup ## Split all of it into sentences
	$(STAGE) documents
shards: setup ## Shuffle the documents into shards, some of them held out
	$(STAGE) shards
vocab: setup ## Train a vocabulary on the shards, or take VOCAB
	$(STAGE) vocab
corpus: setup ## All of the above: sharded documents and a vocabulary
	$(STAGE) corpus
tfrecords: setup ## Masked samples of 128 and of 512 tokens
	$(STAGE) tfrecords
bpe: setup ## For causal models: train a byte-level BPE on the texts, or take BPE
	$(STAGE) bpe
tokens: setup ## The texts as tokens of that BPE, in one stream
	$(STAGE) tokens
verify: setup ## Check every file, line and record of the corpus, the samples and the tokens
	$(STAGE) verify
stats: setup ## Tables and pictures of the corpus, the samples and the tokens, beside each folder
	$(STAGE) stats
pretrain: setup ## Pretrain RECIPE, phase 2 from all weights of phase 1
	$(STAGE) pretrain
squad: setup ## Fine-tune PRETRAINED, or else RECIPE after pretraining, on SQUAD_TRAIN
	$(STAGE) squad
squad-eval: setup ## Answer SQUAD_DEV with the fine-tuned model and print its scores
	$(STAGE) squad-eval
glue: setup ## Fine-tune PRETRAINED, or else RECIPE after pretraining, on TASK of GLUE; print the scores
	$(STAGE) glue
race: setup ## The same on RACE, multiple choice
	$(STAGE) race
ner: setup ## The same on NER, the tagging of names
	$(STAGE) ner
serve: setup ## Answer over HTTP with MODEL, and on a web page; FLAGS as of python -m serve
	$(STAGE) serve

# Measurements and checks

test: setup ## Run the tests
	$(RUN) pytest -n 2

test-all: test ## Run the tests, and those that take long, start several ranks or break things on purpose
	$(RUN) pytest -n 2 -m "(slow or faults) and not multiprocess"
	$(RUN) pytest -m multiprocess

soak: setup ## Train and prepare data for 20 minutes under random faults; compare with undisturbed results
	$(RUN_WITH_FLAGS) scripts/launcher.sh quiet python -m tests.soak

parity: setup ## Compare models that go out and come in with transformers, in an environment of its own
	$(RUN) scripts/extra_venv.sh parity pytest -m parity

bench: setup ## Time training steps and inference beside transformers on PyTorch, in one run
	$(RUN_WITH_FLAGS) scripts/extra_venv.sh parity python -m benchmarks.steps

gpu-check: setup ## Compile the programs for NVIDIA GPUs without one: memory, kernels, traffic, a roofline
	$(RUN_WITH_FLAGS) scripts/extra_venv.sh gpu-check scripts/launcher.sh quiet python -m benchmarks.gpu_check

gpu-day-prepare: setup ## Make what a day on a lent GPU needs: data, and the CPU's losses
	$(RUN_WITH_FLAGS) python -m benchmarks.gpu_day prepare --output "$${BERT_WORKDIR:-workdir}/gpu_day"

gpu-day: setup ## Measure on one GPU in 40 minutes, the most worth first, and write the results page
	$(RUN_WITH_FLAGS) python -m benchmarks.gpu_day run --output "$${BERT_WORKDIR:-workdir}/gpu_day"

lint: setup ## Check style, types, import directions and shell scripts
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports --no-cache
	$(RUN) shellcheck --external-sources scripts/*.sh .ci/run

lock: setup ## Lock all packages with their hashes, after a change of requirements.txt or pyproject.toml
	$(RUN) scripts/lock.sh

audit: setup ## Compare all locked packages with the published advisories; needs a network
	$(RUN) scripts/audit.sh

clean: ## Remove caches; the work folder and the environment stay
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find bert data squad tasks serve scripts tests -name __pycache__ -prune -exec rm -rf {} +

# make expands $(...) in a value from its command line when it exports it. So each is replaced by its own text. The
# stages are told these names, of which they refuse those that do not exist, and all targets: they check every setting
# before the first one begins.
export GOALS := $(MAKECMDGOALS)
export GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
$(foreach name,$(GIVEN),$(eval override export $(name) := $$(value $(name))))

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
##   PHASE1_SEQ     tokens of a sample in the first phase (128);  PHASE2_SEQ  in the second (512)
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
##   PRETRAIN_FLAGS more flags for pretraining where another target implies it; likewise
##                  SQUAD_FLAGS, TASK_FLAGS
##   BERT_WORKDIR   where everything generated goes (./workdir)
##   PYTHON, VENV   the interpreter to set up with (python3), environment to make (.venv);  DEVICE gpu or cpu (detected)
##
## Each value is taken as it stands: make expands no $ in it, and no shell reads it. Only the shell in which you type
## needs quotes: make corpus BOOKS='my $ books'. FLAGS is a list of words, separated by spaces. Quotes and backslashes
## in it group as in a shell, and nothing is expanded: FLAGS='--run.seed 7 --data.vocab "my words.txt"'. Give values as
## NAME=value, or in the environment: NAME:=value and NAME!=value ask make itself to expand or run them.
