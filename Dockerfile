# Three images: operator, server and sidecar. `make image` builds them all.
# In each, what changes seldom comes first: a change of the code installs one wheel anew.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS base
ENV PATH=/opt/drillcore/bin:${PATH} PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/drillcore && useradd --uid 65532 --no-create-home --shell /usr/sbin/nologin drillcore

# The distribution as one wheel.
FROM base AS wheel
RUN pip install hatchling
WORKDIR /source
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY operator operator
COPY server server
COPY kernels kernels
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

# What each image needs, apart from the rest of pyproject.toml: its changes install no dependency anew.
FROM base AS requirements
COPY pyproject.toml /build/
COPY images/requirements.py /build/images/
RUN python /build/images/requirements.py operator > /build/operator.txt \
 && python /build/images/requirements.py sidecar > /build/sidecar.txt \
 && python /build/images/requirements.py server kernels > /build/server.txt

# Only wheels: nothing is compiled, and no compiler is there.
FROM base AS operator
COPY --from=requirements /build/operator.txt /build/requirements.txt
COPY constraints.txt /build/
RUN pip install --only-binary :all: --constraint /build/constraints.txt --requirement /build/requirements.txt
COPY --from=wheel /wheel /build/wheel
RUN pip install --no-deps /build/wheel/*.whl
USER 65532:65532
ENTRYPOINT ["/opt/drillcore/bin/python", "-m", "drillcore_operator"]

FROM base AS sidecar
COPY --from=requirements /build/sidecar.txt /build/requirements.txt
COPY constraints.txt /build/
RUN pip install --only-binary :all: --constraint /build/constraints.txt --requirement /build/requirements.txt
COPY --from=wheel /wheel /build/wheel
RUN pip install --no-deps /build/wheel/*.whl
USER 65532:65532
ENTRYPOINT ["/opt/drillcore/bin/python", "-m", "drillcore_server.sidecar"]

FROM base AS server
# Triton compiles its launcher with the node's driver in sight: it needs a C compiler and Python's headers.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && headers=$(python -c 'import sysconfig; print(sysconfig.get_path("include"))') \
 && if [ ! -e "${headers}/Python.h" ]; then apt-get install --yes --no-install-recommends libpython3-dev; fi \
 && rm -rf /var/lib/apt/lists/*
COPY --from=requirements /build/server.txt /build/requirements.txt
COPY constraints.txt /build/
RUN pip install --only-binary :all: --constraint /build/constraints.txt --requirement /build/requirements.txt
# The model and the rows of `helm test`.
COPY images/make_self_test_model.py /build/images/
COPY images/self_test_rows.jsonl /opt/drillcore/self-test/rows.jsonl
RUN HOME=/tmp python /build/images/make_self_test_model.py /opt/drillcore/self-test/model
COPY --from=wheel /wheel /build/wheel
RUN pip install --no-deps /build/wheel/*.whl
USER 65532:65532
ENTRYPOINT ["/opt/drillcore/bin/python", "-m", "drillcore_server.shard"]
