# Everything a newcomer, a developer and CI run. `make help` lists it.

CARGO ?= cargo
LOCKED := --locked
PROGRAMS := -p node-ccm -p lifecycle-ccm
# The programs as they are shipped: one static file each, which runs in an empty image
# and shares no library's pages.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
DIST = target/$(HOST)/dist
# The clouds besides `external` that are built into the shipped programs, by their features:
# PROVIDERS=openstack. Each one takes memory even where another one is in use.
PROVIDERS ?=
# Functions of equal code are one, where Rust links with lld.
FOLD = $(if $(filter x86_64-unknown-linux-gnu,$(HOST)),-C link-arg=-Wl$(comma)--icf=all $(RELR))
# Half a megabyte of relocations, read whole at start, becomes ten kilobytes; a static
# program of an older glibc could not read them.
RELR = $(shell getconf GNU_LIBC_VERSION 2>/dev/null | awk '{split($$2, v, "."); if (v[1] > 2 || v[2] >= 36) print "-C link-arg=-Wl,-z,pack-relative-relocs"}')
# Sequences of instructions that occur often are one, which costs a jump and saves pages.
OUTLINE = -C llvm-args=-enable-machine-outliner=always
comma := ,
BUILD_DIST = RUSTFLAGS="-C target-feature=+crt-static $(OUTLINE) $(FOLD)" $(CARGO) build $(LOCKED) --profile dist --target $(HOST) $(PROGRAMS) --no-default-features --features "$(PROVIDERS)"
BENCH ?= all
ifeq ($(BENCH),openstack)
PROVIDERS = openstack
endif
# Which releases of OpenStack: debian (old) or pypi (current).
FLAVOUR ?= debian

.DEFAULT_GOAL := help
.PHONY: help demo demo-check test test-cluster test-openstack test-alerts dashboards test-dashboards manifests test-manifests test-rights lint deny build fmt docs bench model-check tools clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

tools: # what every target needs; says what is missing and how to get it
	@tests/need.sh

demo: tools ## a simulated cluster and cloud, the real programs, a story on the terminal; Ctrl-C ends it
	$(CARGO) build $(LOCKED) --workspace --bins
	target/debug/playground

demo-check: tools ## the story once, without staying: fails when a step fails
	$(CARGO) build $(LOCKED) --workspace --bins
	target/debug/playground --check

test: tools ## all tests that need nothing but this checkout
	$(CARGO) build $(LOCKED) --workspace --bins
	QUARTET_CLUSTER=sim $(CARGO) test $(LOCKED) --workspace

test-cluster: tools ## the scenarios and kubectl on a real kube-apiserver and etcd (built once from their Go modules, or KUBEBUILDER_ASSETS)
	tests/kube-apiserver/build.sh
	$(CARGO) build $(LOCKED) --workspace --bins
	QUARTET_CLUSTER=real $(CARGO) test $(LOCKED) -p ccm-tests --test scenarios -- --test-threads=1
	kubectl="$$(tests/kube-apiserver/build.sh)/kubectl"; for cluster in real sim; do \
	  QUARTET_KUBECTL="$$kubectl" QUARTET_KUBECTL_REQUIRED=1 QUARTET_CLUSTER=$$cluster \
	    $(CARGO) test $(LOCKED) -p ccm-tests --test kubectl || exit 1; \
	done

test-openstack: tools ## the scenarios with real Keystone, Nova and Neutron on loopback, and a real kube-apiserver (root on Debian 12; FLAVOUR=debian|pypi)
	tests/kube-apiserver/build.sh
	$(CARGO) build $(LOCKED) --workspace --bins
	trap 'tests/openstack/down --flavour=$(FLAVOUR)' EXIT INT TERM; \
	  tests/openstack/up --flavour=$(FLAVOUR) >/dev/null && \
	  QUARTET_OPENSTACK=$(FLAVOUR) QUARTET_CLUSTER=real $(CARGO) test $(LOCKED) -p ccm-tests --test openstack -- --test-threads=1

test-alerts: ## the alert rules and their cases with Debian's promtool (unpacked once, or QUARTET_PROMETHEUS)
	promtool="$$(tests/prometheus/install.sh)/promtool" && \
	  "$$promtool" check rules grafana/alerts/*.yaml && \
	  "$$promtool" test rules grafana/alerts/tests/*.yaml

lint: tools ## formatting, clippy without warnings, documentation without broken links
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc $(LOCKED) --workspace --no-deps --quiet

deny: ## licences, sources and duplicates of dependencies (installs cargo-deny when it is missing)
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	cargo-deny --offline check bans licenses sources

build: tools ## the programs as they are shipped, static, in target/<host>/dist (PROVIDERS=openstack builds that in)
	$(BUILD_DIST)

fmt: ## format
	$(CARGO) fmt --all

docs: tools ## write the generated pages of docs/ anew
	$(CARGO) build $(LOCKED) $(PROGRAMS)
	target/debug/node-ccm --print-options-markdown > docs/options.md
	target/debug/lifecycle-ccm --print-options-markdown > docs/options-lifecycle-ccm.md
	$(CARGO) run $(LOCKED) --quiet -p ccm-tests --bin metrics-page > docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md

# Where docs/ is published: the dashboards link there.
DOCS ?= https://quartet.dev/docs
DASHBOARDS = cd grafana/dashboards/source && GOFLAGS=-mod=readonly go run . -docs=$(DOCS)

dashboards: ## write grafana/dashboards/*.json from their source (Go 1.24 or newer)
	$(DASHBOARDS)

test-dashboards: tools test-alerts ## test-alerts, and every query of the dashboards and rules by a real Prometheus that scrapes the programs
	cd grafana/dashboards/source && test -z "$$(gofmt -l .)" && go vet .
	$(DASHBOARDS) -check
	$(CARGO) build $(LOCKED) --workspace --bins
	prometheus="$$(tests/prometheus/install.sh)" && \
		  QUARTET_PROMETHEUS="$$prometheus" $(CARGO) test $(LOCKED) -p ccm-tests --test dashboards

bench: tools ## the figures: requests, calls, bytes, memory, seconds (BENCH=name runs one; BENCH=openstack [FLAVOUR=pypi] needs root on Debian 12)
	tests/kube-apiserver/build.sh
	$(BUILD_DIST)
	$(CARGO) build $(LOCKED) --release -p ccm-tests --bin bench
	QUARTET_BIN=$(DIST) target/release/bench $(BENCH) --flavour $(FLAVOUR)

model-check: tools ## the whole model of leader election: four minutes, 1 GB
	$(CARGO) run $(LOCKED) --release -p ccm-runtime --example model-check

clean: ## remove what was built here
	$(CARGO) clean

test-rights: tools ## each program with its own role on the real API server, and one right less at a time (RIGHTS=all: every scenario)
	tests/kube-apiserver/build.sh
	$(CARGO) build $(LOCKED) $(PROGRAMS)
	QUARTET_CLUSTER=real QUARTET_RIGHTS=$(RIGHTS) $(CARGO) test $(LOCKED) -p ccm-tests --test rights

manifests: tools ## write manifests/rendered and the operator's rules anew
	manifests/render.sh

test-manifests: tools ## every base, overlay and choice of manifests/ on the real API server
	tests/kube-apiserver/build.sh
	$(CARGO) build $(LOCKED) $(PROGRAMS)
	QUARTET_CLUSTER=real $(CARGO) test $(LOCKED) -p ccm-tests --test manifests
