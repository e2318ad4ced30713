# The service: migrations, the API, ingest and the dashboard. Nothing is measured in here.
# The steps are the verbs that everybody runs (Makefile), with the versions that everybody gets (constraints.txt).

FROM python:3.11.16-slim-trixie AS build
RUN apt-get update \
  && apt-get install --yes --no-install-recommends make \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/roofwatch
COPY . .
# An index with CPU builds of torch. Without one pip takes the build for CUDA, which brings gigabytes that the service
# has no use for. No password in it: arguments stay in the history of this stage.
ARG PIP_EXTRA_INDEX_URL=""
RUN --mount=type=cache,target=/root/.cache/pip make setup

FROM python:3.11.16-slim-trixie
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin roofwatch
# owned by root: the service cannot change its own code
COPY --from=build /opt/roofwatch /opt/roofwatch
ENV PATH=/opt/roofwatch/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/roofwatch
EXPOSE 8501 8700
ENTRYPOINT ["roofwatch"]
CMD ["--help"]
