# The server in two images: `light` answers from ONNX folders and has no torch, `full` has the CPU build of torch, and
# also trains. Both run as a user without rights, on a file system that may be read-only; docs/serving.md shows how.
#   docker build --target light --tag bertsmith:light .
#   docker build --target full --tag bertsmith:full .

ARG BASE=python:3.13-slim

FROM ${BASE} AS build
# Where pip finds torch without CUDA: an index, or a folder of wheels. Variables reach the stages below in every builder.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG WHEELS
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_EXTRA_INDEX_URL=${TORCH_INDEX} PIP_FIND_LINKS=${WHEELS} PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
RUN python3 -m venv --without-pip /opt/bertsmith && python3 -m venv /opt/pip
COPY constraints.txt ./
COPY requirements requirements

FROM build AS build-light
RUN /opt/pip/bin/pip --python /opt/bertsmith/bin/python install --no-compile --constraint constraints.txt \
        --requirement requirements/light.txt fastapi prometheus-client pydantic uvicorn
# What no command here loads: Arrow's network protocol and storage services, headers, tests, tools of other models. The
# library that Arrow binds Python with is in the wheel under three names.
RUN for packages in /opt/bertsmith/lib/python3*/site-packages; do \
        rm -rf "$packages"/pyarrow/include "$packages"/pyarrow/tests "$packages"/pyarrow/libarrow_flight* \
            "$packages"/pyarrow/libarrow_python_flight* "$packages"/pyarrow/_flight*.so \
            "$packages"/pyarrow/libarrow_s3* "$packages"/pyarrow/_s3fs*.so \
            "$packages"/onnxruntime/transformers "$packages"/onnxruntime/tools "$packages"/onnxruntime/datasets \
            "$packages"/numpy/tests "$packages"/numpy/*/tests; \
        for library in "$packages"/pyarrow/libarrow_python.so.*.*.*; do \
            ln -sf "${library##*/}" "${library%.*.*}"; ln -sf "${library##*/}" "${library%.so.*}.so"; \
        done; \
    done
COPY LICENSE MANIFEST.in README.md pyproject.toml ./
COPY docs/bertsmith.1 docs/
COPY src src
RUN /opt/pip/bin/pip --python /opt/bertsmith/bin/python install --no-compile --no-deps .

FROM build AS build-full
COPY LICENSE MANIFEST.in README.md pyproject.toml ./
COPY docs/bertsmith.1 docs/
COPY src src
ARG EXTRAS=serve,export,index
RUN /opt/pip/bin/pip --python /opt/bertsmith/bin/python install --no-compile --constraint constraints.txt ".[${EXTRAS}]"

FROM ${BASE} AS run
# The only folder that is written to is /tmp, which is also the home of the user, and where Python keeps what it compiles.
ENV HOME=/tmp PATH=/opt/bertsmith/bin:$PATH PYTHONPYCACHEPREFIX=/tmp/compiled PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin bertsmith
WORKDIR /data
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["bertsmith"]
CMD ["serve", "--model", "starter", "--host", "0.0.0.0", "--port", "8000"]

FROM run AS light
COPY --from=build-light /opt/bertsmith /opt/bertsmith

FROM run AS full
COPY --from=build-full /opt/bertsmith /opt/bertsmith
