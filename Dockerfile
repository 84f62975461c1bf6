# Three images of one recipe: docs/containers.md says what each is for, scripts/docker_build.sh builds them.
#   --target cuda   NVIDIA's CUDA image, with TensorFlow 2.21 and a Horovod built with NCCL and MPI (default)
#   --target ngc    NVIDIA's last TensorFlow container, whose TensorFlow 2.17, Horovod and NCCL are used as they are
#   --target cpu    plain Python, TensorFlow 2.21 and a Horovod built with Gloo
# Set-up is done here and never at start: its stamp covers the very files that are copied before it. The source and the
# environment belong to root and are read by any user; what is generated goes into the volume /workdir.
ARG CUDA_BASE=nvcr.io/nvidia/cuda:12.9.1-cudnn-devel-ubuntu24.04
ARG NGC_BASE=nvcr.io/nvidia/tensorflow:25.02-tf2-py3
ARG CPU_BASE=python:3.11-slim-bookworm
# A tag can be given to another image later, @sha256:... cannot: docs/containers.md says how to find it.
ARG CUDA_DIGEST=
ARG NGC_DIGEST=
ARG CPU_DIGEST=

FROM ${CPU_BASE}${CPU_DIGEST} AS cpu
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make cmake git openssh-client \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --mode 1777 /workdir
WORKDIR /bert
ENV VENV=/opt/venv BERT_WORKDIR=/workdir PATH=/opt/venv/bin:$PATH PYTHON=/usr/local/bin/python3 DEVICE=cpu
COPY requirements/ requirements/
COPY scripts/*setup*.sh scripts/*horovod*.sh scripts/*cuda*.sh scripts/uv.py scripts/
RUN XDG_CACHE_HOME=/tmp/cache PIP_NO_CACHE_DIR=1 scripts/setup.sh && rm -rf /tmp/cache
COPY . .
RUN chmod -R a+rX,go-w /bert
# A user that the image does not know has no home and no name.
ENV HOME=/tmp LOGNAME=bert PYTHONDONTWRITEBYTECODE=1
USER 1000
VOLUME /workdir
CMD ["make", "help"]

FROM ${NGC_BASE}${NGC_DIGEST} AS ngc
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv make git openssh-client \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --mode 1777 /workdir
WORKDIR /bert
ENV VENV=/opt/venv BERT_WORKDIR=/workdir PATH=/opt/venv/bin:$PATH PYTHON=/usr/bin/python3
COPY requirements/ requirements/
COPY scripts/*setup*.sh scripts/*horovod*.sh scripts/*cuda*.sh scripts/uv.py scripts/
# NVIDIA's images tell pip the versions of their own packages; the environment here has others beside them.
RUN XDG_CACHE_HOME=/tmp/cache PIP_NO_CACHE_DIR=1 PIP_CONSTRAINT='' scripts/setup.sh && rm -rf /tmp/cache
COPY . .
RUN chmod -R a+rX,go-w /bert
ENV HOME=/tmp LOGNAME=bert PYTHONDONTWRITEBYTECODE=1
USER 1000
VOLUME /workdir
CMD ["make", "help"]

FROM ${CUDA_BASE}${CUDA_DIGEST} AS cuda
# hadolint ignore=DL3008
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        python3 python3-dev python3-venv g++ make cmake git openssh-client openssh-server procps \
        openmpi-bin libopenmpi-dev \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
 && install --directory --mode 1777 /workdir
WORKDIR /bert
ENV VENV=/opt/venv BERT_WORKDIR=/workdir PATH=/opt/venv/bin:$PATH PYTHON=/usr/bin/python3 DEVICE=gpu
COPY requirements/ requirements/
COPY scripts/*setup*.sh scripts/*horovod*.sh scripts/*cuda*.sh scripts/uv.py scripts/
RUN XDG_CACHE_HOME=/tmp/cache PIP_NO_CACHE_DIR=1 scripts/setup.sh && rm -rf /tmp/cache
COPY . .
RUN chmod -R a+rX,go-w /bert
ENV HOME=/tmp LOGNAME=bert PYTHONDONTWRITEBYTECODE=1
USER 1000
VOLUME /workdir
CMD ["make", "help"]
