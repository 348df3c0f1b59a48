# One image for every service that is ours: the compose file says which command it runs.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY requirements ./requirements
COPY sessionlib ./sessionlib
COPY workers ./workers
RUN python -m venv /opt/sessionlib \
    && /opt/sessionlib/bin/pip install --no-cache-dir -r requirements/lock.txt \
    && /opt/sessionlib/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
RUN useradd --system --create-home sessionlib
COPY --from=build /opt/sessionlib /opt/sessionlib
ENV PATH=/opt/sessionlib/bin:$PATH PYTHONUNBUFFERED=1
# Agents are mounted here; it is on the path so that modules in it can be named in SESSIONLIB_AGENTS.
WORKDIR /agents
ENV PYTHONPATH=/agents
USER sessionlib
CMD ["sessionctl", "--help"]
