# One image for each name that `scripts/install` knows; server and jobs use the target "server", which is the default:
#   docker build --build-arg IMAGE=server .
#   docker build --build-arg IMAGE=sumo --target environment .
# runtimes/images defines the content of images; `make images` builds the same images without Docker. See docs/images.md.
# The base by the digest of its index (all architectures): the tag moves with every build of it.
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

# Build tools: images contain none of this, except the interpreter and the shared libraries that their content needs.
FROM ${BASE} AS tools
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
    binutils g++ libatomic1 libexpat1 libgl1 libgomp1 libx11-6 libxext6 libxrender1 \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml uv.lock ./
COPY scripts/uv scripts/uv.txt scripts/
RUN scripts/uv sync --frozen --no-default-groups --all-extras --no-install-package windtunnel --quiet
COPY . .

FROM tools AS python
RUN scripts/install server python /image

FROM python AS parts
ARG IMAGE=server
RUN scripts/install "$IMAGE" site /image
RUN scripts/install "$IMAGE" environments /image
RUN scripts/install "$IMAGE" code /image

FROM scratch AS environment
ARG IMAGE=server
ARG TAG=unknown
COPY --from=python /image/python/ /
COPY --from=parts /image/site/ /
COPY --from=parts /image/environments/ /
COPY --from=parts /image/code/ /
ENV PATH=/opt/windtunnel/python/bin \
    PYTHONPATH=/opt/windtunnel/src:/opt/windtunnel/site \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
LABEL org.opencontainers.image.title="windtunnel-$IMAGE" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$TAG"
WORKDIR /opt/windtunnel/src
USER 10001:10001
ENTRYPOINT ["/opt/windtunnel/python/bin/python"]

FROM environment AS server
ENV WINDTUNNEL_HOME=/var/lib/windtunnel
ENTRYPOINT ["/opt/windtunnel/python/bin/python", "-m", "server"]
