# Make data from raw text, pretrain BERT, fine-tune it, answer questions. `make help` lists the targets and variables.

.DEFAULT_GOAL := help
.NOTPARALLEL: # targets share one environment and one work folder
SHELL := bash
# RUN: a command in the environment. RUN_WITH_FLAGS: the same with the words of the variable FLAGS behind it. STAGE: a
# stage by its name.
RUN := @scripts/launcher.sh in-venv
RUN_WITH_FLAGS := @scripts/launcher.sh with-flags FLAGS
STAGE := @scripts/launcher.sh run python -m scripts.stages

.PHONY: help setup doctor demo download wikipedia books text pubmed documents shards vocab corpus tfrecords bpe tokens \
	verify stats pretrain squad squad-eval glue race ner serve test test-ci test-all soak parity bench gpu-check \
	lint docs lock audit clean

help: ## List the targets and variables
	@echo "Targets:"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 20
	@echo "Variables, given as make TARGET NAME=value:"
	@sed -n 's/^##//p' Makefile

setup: ## Make the virtual environment VENV for DEVICE, with Horovod; at once if it is up to date
	@scripts/setup.sh

doctor: ## Check driver, GPUs, CUDA, TensorFlow, Horovod, network, ulimits and disk; works without set-up, too
	@"$$(command -v "$${VENV:-.venv}/bin/python" || echo "$${PYTHON:-python3}")" -m bert.doctor

demo: setup ## End-to-end demo on synthetic data: from a dump to answers and scores, minutes on two cores
	$(RUN) scripts/demo.sh

# Stages: scripts/stages.py says what each runs. A stage first runs those that it needs, and skips what is up to date.
# `python -m scripts.stages --dry_run NAME` shows the commands.

download: setup ## Fetch what WIKIPEDIA, BOOKS, PUBMED, SQUAD_TRAIN and SQUAD_DEV name
	$(STAGE) download
wikipedia: setup ## Make documents of WIKIPEDIA: extract and clean its articles
	$(STAGE) wikipedia
books: setup ## Make documents of BOOKS
	$(STAGE) books
text: setup ## Make documents of TEXT
	$(STAGE) text
pubmed: setup ## Make documents of PUBMED
	$(STAGE) pubmed
documents: setup ## Remove duplicates from the documents of all sources, and split them into sentences
	$(STAGE) documents
shards: setup ## Shuffle the documents into shards, and hold some out for evaluation
	$(STAGE) shards
vocab: setup ## Train a vocabulary on the shards, or take VOCAB
	$(STAGE) vocab
corpus: setup ## All stages from download to vocab: sharded documents and a vocabulary
	$(STAGE) corpus
tfrecords: setup ## Make training samples of PHASE1_SEQ and of PHASE2_SEQ tokens
	$(STAGE) tfrecords
bpe: setup ## For causal models: train a byte-level BPE on the texts, or take BPE
	$(STAGE) bpe
tokens: setup ## For causal models: write the texts as one stream of tokens of that BPE
	$(STAGE) tokens
verify: setup ## Check every file, line and record that the stages above have made; make them if there are none
	$(STAGE) verify
stats: setup ## Tables and pictures of what they have made: NAME-stats beside each folder NAME
	$(STAGE) stats
pretrain: setup ## Pretrain RECIPE: phase 1, then phase 2 from its weights
	$(STAGE) pretrain
squad: setup ## Fine-tune PRETRAINED (default: what pretrain makes) on SQUAD_TRAIN
	$(STAGE) squad
squad-eval: setup ## Answer SQUAD_DEV with the fine-tuned model, and print its scores
	$(STAGE) squad-eval
glue: setup ## Fine-tune PRETRAINED (default: what pretrain makes) on TASK of GLUE, and print its scores
	$(STAGE) glue
race: setup ## Fine-tune it on RACE (multiple choice), and print its scores
	$(STAGE) race
ner: setup ## Fine-tune it on NER (named entities), and print its scores
	$(STAGE) ner
serve: setup ## Serve MODEL over HTTP and on a web page; FLAGS: python -m serve --help
	$(STAGE) serve

# Measurements and checks

test: setup ## Run the fast tests, without a network and a GPU; CHANGED=REVISION: those of what differs
	$(RUN) $(if $(CHANGED),python -m tests.affected $(CHANGED)) pytest -n 2 --dist worksteal

test-ci: setup ## Run those, and tests that are slow, start several ranks, or kill and damage things
	@# Two sessions, because in one the two workers come to need 21 GB.
	$(RUN) pytest -n 2 --dist worksteal -m "not (multiprocess or thorough or parity)" tests/bert
	$(RUN) pytest -n 2 --dist worksteal -m "not (multiprocess or thorough or parity)" --ignore tests/bert
	$(RUN) pytest -n 2 --dist worksteal -m "multiprocess and not thorough"

test-all: test-ci ## Run all tests: also those that repeat a claim of others at more places
	$(RUN) pytest -n 2 --dist worksteal -m "thorough and not parity"

soak: setup ## Train and prepare data for 20 minutes under random faults; compare with results without faults
	$(RUN_WITH_FLAGS) scripts/launcher.sh run python -m tests.soak

parity: setup ## Compare exported and imported models with transformers, in a separate environment
	$(RUN) scripts/extra_venv.sh optimum scripts/extra_venv.sh parity pytest -m parity

bench: setup ## Time training steps and inference beside transformers on PyTorch, in the same session
	$(RUN_WITH_FLAGS) scripts/extra_venv.sh parity python -m benchmarks.steps

gpu-check: setup ## Compile the models for NVIDIA GPUs, without one: memory, calls of libraries
	$(RUN_WITH_FLAGS) scripts/extra_venv.sh gpu-check scripts/launcher.sh run python -m benchmarks.gpu_check

lint: setup ## Check style, types, which package imports which, and shell scripts
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports --no-cache
	$(RUN) shellcheck --external-sources scripts/*.sh findings/*.sh .ci/run

docs: setup ## Build the site of the pages, and check its links; open BERT_WORKDIR/site/index.html
	$(RUN) scripts/extra_venv.sh docs env NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict \
		--site-dir "$${BERT_WORKDIR:-workdir}/site"

lock: setup ## Write requirements/*.lock with hashes, after a change of requirements.txt or pyproject.toml
	$(RUN) scripts/lock.sh

audit: setup ## Look the locked packages up among published security advisories; needs a network
	$(RUN) scripts/audit.sh

clean: ## Remove caches; the work folder and the environment stay
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find bert data squad tasks serve extensions scripts tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Values are passed literally: make would expand a $ in one that is given on its command line. GOALS are the targets of
# this call, GIVEN the variables on its command line. A stage refuses unknown names in GIVEN, and checks the settings of
# all GOALS before the first one begins.
export GOALS := $(MAKECMDGOALS)
export GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
$(foreach name,$(GIVEN),$(eval override export $(name) := $$(value $(name))))

##   WIKIPEDIA      dump (.xml, .xml.bz2), folder of its parts or wikiextractor output; en, simple, de ...: a download
##   BOOKS          folder of books, one .txt each; or pg19, which is downloaded
##   PUBMED         files of PubMed (.xml.gz) or their folder; or a year such as 2026, whose baseline is downloaded
##   TEXT           any other text: folder of .txt, .jsonl, .parquet files, or one file. At least one of the four is set
##   TEXT_FLAGS     flags of data.text, such as --encoding gb18030 --text_column title body; likewise BOOKS_FLAGS,
##                  WIKIPEDIA_FLAGS and PUBMED_FLAGS
##   LANGUAGE       of the texts, such as de: NLTK's Punkt model of it is used if it is installed
##   BERT_CONTACT   a mail address or page, which is sent to the servers of downloads
##   VOCAB          vocab.txt or tokenizer.json to use, or `train` (default) to train a vocab.txt of VOCAB_SIZE entries
##                  (30522)
##   LOWER_CASE     false for a cased vocabulary;  STRIP_ACCENTS  false to keep accents of lower-cased text
##   SPECIAL        further special tokens, such as "[E1] [/E1]", kept whole where a text has them
##   SHARDS         shards of the corpus (default: from its size and the cores; fewer for few documents)
##   HELDOUT        share of the documents to hold out from training (0.02; for causal models 0.01)
##   DUPE_FACTOR    times that each document is masked;  MASKED_LM_PROB  share of tokens to predict
##   RECORDS        `instances`, masked now, or `documents`, masked while training reads them
##   PAIRS          nsp, sop or none (defaults of these four: python -m data.tfrecords --help)
##   RECORDS_FLAGS  flags of data.tfrecords, such as --single_sentences true --mask_shares 0.9 0.1 0
##   PHASE1_SEQ     tokens of a sample in the first phase (128);  PHASE2_SEQ  in the second (512), and in the only one
##                  of a recipe whose samples have that length, such as bert_1b3
##   BPE            for causal models: folder of GPT-2's vocab.json and merges.txt, or `train` (default) to train a
##                  byte-level BPE of BPE_SIZE tokens (50257)
##   RECIPE         a name in bert/recipes.py: bert_mini (default) is bert_mini_phase1, then bert_mini_phase2
##   SQUAD_TRAIN    question set to fine-tune on, .json, .jsonl or compressed (.xz, .gz, .bz2); or squad1 or squad2,
##                  which is downloaded;  SQUAD_DEV  likewise, to answer
##   SQUAD_RECIPE   a name in squad/recipes.py (default: squad_base or squad_large if RECIPE has this size in its name,
##                  else squad_mini);  SQUAD_RUN  its run directory
##   GLUE           folder of GLUE's tasks, or of TASK alone;  TASK  cola sst2 mrpc qqp stsb mnli qnli rte wnli
##   RACE           folder of RACE;  NER  folder with CoNLL-2003's eng.train, eng.testa, eng.testb
##   TASK_RUN       run directory of glue, race and ner
##   MODEL          run directory to serve (default: SQUAD_RUN, or that of RECIPE, or the demo's)
##   PRETRAINED     run directory or imported model to fine-tune (default: the last phase of RECIPE)
##   NP             ranks, one process per device (2);  FLAGS  more flags for the command of the target
##   PRETRAIN_FLAGS more flags for pretraining where another target needs it first; likewise
##                  SQUAD_FLAGS, TASK_FLAGS
##   BERT_WORKDIR   where everything generated goes (./workdir)
##   PYTHON, VENV   the interpreter to set up with (python3), environment to make (.venv);  DEVICE gpu or cpu (detected)
##
## Values are used literally: make expands no $ in them, and no shell reads them. Only the shell in which you type needs
## quotes: make corpus BOOKS='my $ books'. FLAGS is a list of words, separated by spaces. Quotes and backslashes in it
## group words as in a shell, and nothing is expanded: FLAGS='--run.seed 7 --data.vocab "my words.txt"'. Give values as
## NAME=value, or in the environment. Not NAME:=value or NAME!=value: make would expand the value, or run it.
