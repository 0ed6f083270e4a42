# All commands for newcomers, developers and CI. `make help` lists them.

CARGO ?= cargo
# All steps build with one set of features (tests/testing/Cargo.toml), so that each step reuses the
# results of the previous one.
PROGRAMS = $(CARGO) build --locked --bins
TEST = $(CARGO) test --locked
# The programs as they are shipped: one static file each, which runs in an empty image and
# does not share pages of libraries. All controllers of bins/, each with all providers. Packed relocations
# are 7 KB instead of 0.56 MB that each start would read; the code that applies them comes with
# glibc 2.36 or newer. text.ld keeps rarely run code out of the resident memory; its patterns are
# of names in Rust's v0 mangling.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
DIST = target/$(HOST)/dist
CONTROLLERS = $(notdir $(wildcard bins/*-ccm))
# The information about a build in --version, the log and ccm_build_info. Empty without git.
BUILT_FROM = QUARTET_GIT_COMMIT="$$(git rev-parse --short=12 HEAD 2>/dev/null)" \
  QUARTET_GIT_TREE_STATE="$$(git status --porcelain 2>/dev/null | awk 'END {print NR ? "dirty" : "clean"}')" \
  QUARTET_BUILD_DATE="$$(git log -1 --format=%cI 2>/dev/null)"
# The programs do not contain the folder of the builder's crates, so two builders get the same programs.
CRATES = $${CARGO_HOME:-$$HOME/.cargo}
BUILD_DIST = $(BUILT_FROM) RUSTFLAGS="--remap-path-prefix=$(CRATES)=/cargo -C target-feature=+crt-static -C symbol-mangling-version=v0 \
  -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,-T,$(CURDIR)/manifests/image/text.ld" \
  $(CARGO) build --locked --profile dist --target $(HOST) $(addprefix -p ,$(CONTROLLERS)) && \
  for program in $(CONTROLLERS); do $(DIST)/$$program --version || exit 1; \
    if grep -qF "$(CRATES)/" $(DIST)/$$program; then echo "$$program names the folder $(CRATES)" >&2; exit 1; fi; done
# The releases of OpenStack: debian (old) or pypi (current).
FLAVOUR ?= debian
# The machines: empty for all of them, short for the tour of a minute.
KUBELETS ?=
# The benchmark.
BENCH ?= all
DASHBOARDS = cd grafana/dashboards/source && GOFLAGS=-mod=readonly go run .
KUBERNETES = tests/kube-apiserver/build.sh

.DEFAULT_GOAL := help
.PHONY: help tools demo demo-check check test test-cluster test-rights test-manifests test-kubelets \
  test-openstack test-alerts test-dashboards replay lint deny fuzz fmt build docs docs-url dashboards manifests bench mutants model-check lines clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

tools: # what every target needs; says what is missing and how to get it
	@tests/need.sh

demo: tools ## a simulated cluster and cloud, the real programs, a story on the terminal; Ctrl-C ends it
	$(PROGRAMS)
	target/debug/playground

demo-check: tools ## the story once, without staying: fails when a step fails
	$(PROGRAMS)
	target/debug/playground --check

check: tools ## format, clippy and unit tests of the crates that you have changed, in less than a minute (CRATE=service-ccm names one)
	@tests/check.sh $(CRATE)

test: tools ## all tests that need nothing but this checkout
	$(CARGO) build --locked --all-targets
	QUARTET_CLUSTER=sim $(TEST)

test-cluster: tools ## the scenarios and kubectl on real kube-apiservers and etcd (built once from their Go modules, or KUBEBUILDER_ASSETS)
	$(KUBERNETES)
	$(PROGRAMS)
	QUARTET_CLUSTER=real $(TEST) --test world -- scenarios
	export QUARTET_KUBECTL="$$($(KUBERNETES))/kubectl" QUARTET_KUBECTL_REQUIRED=1 && \
	  QUARTET_CLUSTER=real $(TEST) --test world -- kubectl:: && QUARTET_CLUSTER=sim $(TEST) --test world -- kubectl::

test-rights: tools ## each program with one right less of its own role at a time, on the real API server
	$(KUBERNETES)
	$(PROGRAMS)
	QUARTET_CLUSTER=real $(TEST) --test world -- rights::

test-manifests: tools ## every base, overlay and choice of manifests/ on the real API server
	$(KUBERNETES)
	$(PROGRAMS)
	QUARTET_CLUSTER=real $(TEST) --test world -- manifests::

test-kubelets: tools ## real kubelets without containers and the real node lifecycle controller: machines join, restart, die, freeze (five minutes; KUBELETS=short one)
	$(KUBERNETES)
	$(KUBERNETES) kubelets
	$(PROGRAMS)
	QUARTET_CLUSTER=real $(TEST) --test world -- kubelets::$(KUBELETS)

test-openstack: tools ## the scenarios with real Keystone, Nova, Neutron and Octavia on loopback, and a real kube-apiserver (root on Debian 12; FLAVOUR=debian|pypi; SCENARIOS=names or --skip names)
	$(KUBERNETES)
	case "$(SCENARIOS)" in *"--skip other_controller"*) ;; *) tests/openstack/controller-manager/build.sh >/dev/null ;; esac
	$(PROGRAMS)
	trap 'tests/openstack/down --flavour=$(FLAVOUR)' EXIT INT TERM; \
	  tests/openstack/up --flavour=$(FLAVOUR) >/dev/null && \
	  QUARTET_OPENSTACK=$(FLAVOUR) QUARTET_CLUSTER=real $(TEST) --test openstack -- $(SCENARIOS)

test-alerts: ## the alert rules and their cases with Debian's promtool (unpacked once, or QUARTET_PROMETHEUS)
	tests/prometheus/alerts.sh

test-dashboards: tools test-alerts ## test-alerts, and every query of the dashboards and rules by a real Prometheus that scrapes the programs
	cd grafana/dashboards/source && test -z "$$(gofmt -l .)" && go vet .
	$(DASHBOARDS) -check
	$(PROGRAMS)
	QUARTET_PROMETHEUS="$$(tests/prometheus/install.sh)" $(TEST) --test world -- dashboards::

replay: tools ## feed a record of the page /record to this version and show what it decides otherwise (FILE=path)
	@$(CARGO) run --locked --quiet -p ccm-replay -- "$(FILE)"

lint: tools ## formatting, clippy without warnings, documentation without broken links
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --workspace --no-deps --quiet

deny: ## licences, sources and duplicates of dependencies; ADVISORIES=online, or the folder of a clone of the advisory database, checks advisories too
	@ADVISORIES="$(ADVISORIES)" tests/cargo-tools/deny.sh

fuzz: tools ## everything that reads what strangers say, ten minutes each by libFuzzer (SECONDS=20; TARGETS=names); without a C++ compiler, with random inputs
	tests/cargo-tools/fuzz.sh $(or $(SECONDS),600) $(TARGETS)

fmt: ## format
	$(CARGO) fmt --all

build: tools ## the programs as they are shipped, static, in target/<host>/dist
	$(BUILD_DIST)

docs: tools ## write the generated pages of docs/ again
	$(PROGRAMS)
	QUARTET_WRITE_DOCS=1 $(TEST) --test house -- pages::

dashboards: ## write grafana/dashboards/*.json from their source (Go 1.24 or newer)
	$(DASHBOARDS)

docs-url: ## write where you publish docs/ into alerts, dashboards and manifests (DOCS=https://...)
	grafana/docs-url.sh "$(DOCS)"

manifests: tools ## write manifests/rendered and the operator's rules again
	manifests/render.sh

bench: tools ## the figures: requests, calls, bytes, memory, seconds (BENCH=name runs one; BENCH=openstack [FLAVOUR=pypi] needs root on Debian 12)
	$(KUBERNETES)
	$(BUILD_DIST)
	$(CARGO) build --locked --release -p ccm-bench
	QUARTET_BIN=$(DIST) target/release/bench $(BENCH) --flavour $(FLAVOUR)

MUTATED = $(patsubst bins/%/mutants.toml,%,$(wildcard bins/*/mutants.toml)) $(patsubst shared/%/mutants.toml,ccm-%,$(wildcard shared/*/mutants.toml))
mutants: tools ## break one decision of the programs and of the kit after the other: which test finds it (MUTANT=words runs those)
	for package in $(MUTATED); do $(CARGO) run --locked -p ccm-tests --bin mutants -- $$package "$(MUTANT)" || exit 1; done

model-check: tools ## the whole model of leader election: four minutes, 1 GB
	$(CARGO) run --locked --release -p ccm-runtime --example model-check

lines: ## code lines by crate and by part of a controller; REV="58d7aa2 ." (HEAD and the working tree)
	tests/lines.py $(REV)

clean: ## remove what was built here
	$(CARGO) clean
