# Two images of one recipe (scripts/docker_build.sh builds either):
#   --target ngc   NVIDIA's TensorFlow container, whose TensorFlow 2.17, Horovod and NCCL are used as they are (default)
#   --target cpu   plain Python, where `make setup` builds Horovod
# Both run as user 1000 and keep everything generated in the volume /workdir.
ARG BASE=nvcr.io/nvidia/tensorflow:25.02-tf2-py3

FROM python:3.11-slim-bookworm AS cpu-base
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make cmake git \
 && rm -rf /var/lib/apt/lists/*

# hadolint ignore=DL3006
FROM ${BASE} AS ngc-base
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*

FROM cpu-base AS cpu
RUN useradd --uid 1000 --create-home bert && install --directory --owner 1000 /bert /workdir /opt/venv
USER 1000
WORKDIR /bert
ENV VENV=/opt/venv/bert BERT_WORKDIR=/workdir PATH=/opt/venv/bert/bin:$PATH PYTHON=/usr/local/bin/python3
COPY --chown=1000 requirements.txt requirements-dev.txt requirements-extra.txt ./
COPY --chown=1000 scripts/setup.sh scripts/install_horovod.sh scripts/
RUN XDG_CACHE_HOME=/tmp/cache scripts/setup.sh && rm -rf /tmp/cache
COPY --chown=1000 . .
VOLUME /workdir
CMD ["make", "help"]

FROM ngc-base AS ngc
# The container brings a user 1000 of its own, or none.
RUN { getent passwd 1000 || useradd --uid 1000 --create-home bert; } \
 && install --directory --owner 1000 /bert /workdir /opt/venv
USER 1000
WORKDIR /bert
ENV VENV=/opt/venv/bert BERT_WORKDIR=/workdir PATH=/opt/venv/bert/bin:$PATH PYTHON=/usr/bin/python3
COPY --chown=1000 requirements.txt requirements-dev.txt requirements-extra.txt ./
COPY --chown=1000 scripts/setup.sh scripts/install_horovod.sh scripts/
RUN XDG_CACHE_HOME=/tmp/cache scripts/setup.sh && rm -rf /tmp/cache
COPY --chown=1000 . .
VOLUME /workdir
CMD ["make", "help"]
