# Perdure. `make` lists what can be made.
.DEFAULT_GOAL := help
SHELL := /bin/bash
export CGO_ENABLED ?= 0

GO          ?= go
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
SQLC        := $(GO) run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1
# Each run of tests that starts sandboxes takes memory and both cores: few packages at a time.
TESTFLAGS   ?= -p 2 -timeout 20m
DRIVER      ?= gvisor

.PHONY: help build demo test race fuzz lint generate bench deps clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

build: ## build the three binaries into bin/
	$(GO) build -o bin/ ./cmd/...

deps: ## install what the demo and the tests need on Debian
	@scripts/deps

demo: deps build ## show the whole story on a throw-away daemon
	bin/perdure demo --driver $(DRIVER)

test: deps build ## run all tests
	$(GO) test $(TESTFLAGS) ./...

# The packages with concurrency of their own. The engine's is left out: it would compile all of gVisor once more, which has its own tests.
RACE := ./internal/event/... ./internal/session ./internal/store/... ./internal/guest/... ./internal/sandbox/shim ./internal/sandbox/process ./internal/sandbox/gvisor/pages ./internal/checkpoint \
	./internal/snapshot/... ./internal/layer ./internal/agent/... ./internal/service ./internal/server/... ./client

race: deps ## run the concurrent packages under the race detector
	CGO_ENABLED=1 $(GO) test -race -short $(TESTFLAGS) $(RACE)

fuzz: ## run every fuzz target for a short time
	@scripts/fuzz $(FUZZTIME)

lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...

generate: ## regenerate the queries and openapi.yaml
	cd internal/store/sqlite && $(SQLC) generate
	$(GO) generate ./...

bench: deps build ## measure, and write the results into test/bench/results
	$(GO) test ./test/bench -run '^$$' -bench . -benchtime 1x -timeout 60m

clean: ## remove what was built
	rm -rf bin
