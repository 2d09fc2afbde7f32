# Every target is a step of continuous integration, word for word.
# Needs Python 3.11 to 3.13, make and a package index; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
# Compiled modules are kept, whatever the machine asks: tests start hundreds of processes that import them.
export PYTHONDONTWRITEBYTECODE :=
# Tests give large arrays back to the heap and not to the system, which would clear their pages each time.
fast test prove: export MALLOC_MMAP_THRESHOLD_ := 33554432
fast test prove: export MALLOC_TRIM_THRESHOLD_ := 536870912

.PHONY: demo fast test prove installs spark check bench accuracy audit faults mutants accountings continual scale docs clean

# One map from the embedded city, in ./demo.
demo: $(VENV)/.ready
	rm -rf demo
	$(RUN)/trafficdp demo --into demo

# After an edit: of the units, contracts, golden numbers and walls what takes less than half a second a test,
# without stores, browsers and type check.
fast: $(VENV)/.ready
	$(RUN)/python -m pytest -n auto --dist loadgroup \
	  -m "not slow and not store and not browser and not prove" \
	  tests/architecture tests/contract tests/golden tests/unit

# Before a commit: everything that is claimed, every claim once in its cheap form, and what `make check` sees.
test: $(VENV)/.ready
	$(RUN)/python -m pytest -n auto --dist loadgroup -m "not prove"

# Before a version: the long forms of claims whose cheap forms `make test` runs. More draws for coverage
# and the audits, more deaths of commands and streams, more mutants of questions, whole notebooks,
# published figures at 512 coordinates, reports on real feeds written anew, twenty times as many examples
# of any input.
# PROVE=short runs six minutes' worth of one core, picked by the commit, so that every commit proves others.
PROVE := whole
prove: $(VENV)/.ready
	$(RUN)/python -m pytest -n auto --dist loadgroup -m "prove or hypothesis" \
	  --hypothesis-profile trafficdp-long \
	  $(if $(filter short,$(PROVE)),--minutes 6 --pick "$$(git rev-parse HEAD)")

# The wheel on every Python that is here, with its oldest and newest dependencies: every command runs. Needs a
# package index; takes six minutes. `--write` renews data/installs.
installs: $(VENV)/.ready
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)/python pipelines/installs.py

# Spark gives the same integers; needs Java 17 or 21. In an environment of its own, for PySpark is large.
# SPARK=prove runs the long form: ten million simulated records.
SPARK := not prove
spark: $(VENV)-spark/.ready
	$(VENV)-spark/bin/python -m pytest -m "$(SPARK)" tests/spark

# Style, types and walls.
check: $(VENV)/.ready
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports

# Speed and memory as ratios within one run; what is kept of it is data/bench/table.md. Takes hours.
bench: $(VENV)/.ready $(VENV)-peers/.ready
	$(RUN)/python tests/benchmarks/bench_binning.py
	$(RUN)/python tests/benchmarks/bench_main_job.py
	$(RUN)/python tests/benchmarks/bench_scale.py
	$(RUN)/python tests/benchmarks/bench_store.py
	$(RUN)/python tests/benchmarks/bench_planner.py
	$(RUN)/python tests/benchmarks/bench_peers.py --peers $(VENV)-peers/bin/python
	$(RUN)/python tests/benchmarks/bench_map.py
	$(RUN)/python tests/benchmarks/bench_stream.py
	$(RUN)/python tests/benchmarks/bench_timetable.py
	$(RUN)/python tests/benchmarks/bench_siri.py

# How far released maps of Austin are from the truth; needs TRAFFICDP_REAL_DATA.
accuracy: $(VENV)/.ready $(VENV)-peers/.ready
	$(RUN)/python pipelines/accuracy.py
	$(RUN)/python pipelines/maps.py
	$(RUN)/python pipelines/ablation.py
	$(RUN)/python pipelines/presence.py
	$(RUN)/python pipelines/reliability.py
	$(RUN)/python pipelines/knowledge.py
	$(RUN)/python pipelines/changes.py
	$(RUN)/python pipelines/pooled_maps.py
	$(RUN)/python pipelines/timetables.py
	$(RUN)/python pipelines/typical_speeds.py
	$(RUN)/python pipelines/beside.py --peers $(VENV)-peers/bin/python

# What draws prove of every epsilon that is claimed; mistakes made on purpose must be caught.
audit: $(VENV)/.ready
	$(RUN)/python pipelines/audit.py

# Every command fails at a system call on the city's files, and the next one must mend it: one fault in eight,
# which takes half an hour; may be stopped and continued. Needs TRAFFICDP_REAL_DATA, and Linux on x86-64.
faults: $(VENV)/.ready
	$(RUN)/python pipelines/faults.py --every 8 --write

# Which changes of one line of the privacy core a test notices; takes hours, and may be stopped and continued.
mutants: build/executed.jsonl
	$(RUN)/python pipelines/mutants.py

build/executed.jsonl: $(VENV)/.ready $(shell find trafficdp -name '*.py')
	mkdir -p build
	rm -f $@.part
	$(RUN)/python pipelines/executed.py $@.part -q -m "not prove and not browser and not real" \
	  tests/unit tests/contract tests/golden tests/audit tests/distribution
	mv $@.part $@

# What the same error costs under every accounting, on Austin's counts; needs TRAFFICDP_REAL_DATA.
accountings: $(VENV)/.ready
	$(RUN)/python pipelines/accountings.py

# Error over time of continual means, on four arrival orders and a day of Austin; needs TRAFFICDP_REAL_DATA.
continual: $(VENV)/.ready
	$(RUN)/python pipelines/continual.py

# What vehicles cost, step by step, on one machine and by Spark; for the notebook and the guide.
scale: $(VENV)-spark/.ready
	$(VENV)-spark/bin/python pipelines/scale.py
	$(VENV)-spark/bin/python pipelines/regions.py

# The pages that follow from the code: configuration, command line, architecture.
docs: $(VENV)/.ready
	$(RUN)/python pipelines/reference.py

clean:
	rm -rf $(VENV) $(VENV)-spark $(VENV)-peers demo build

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade pip
	$(RUN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)-spark/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-spark
	$(VENV)-spark/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-spark/bin/python -m pip install --quiet --editable '.[spark,dev]'
	touch $@

# PipelineDP, which the benchmarks are compared with and nothing else uses.
$(VENV)-peers/.ready:
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet pipeline-dp==0.3.1
	touch $@
