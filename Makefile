# What is used here: Go; for tests also Node with npm, Python with venv and pip, and the Google Cloud CLI with Java for
# its Firestore emulator. Everything else is brought by the targets, pinned, into ignored folders.

# Versions of tools that are only run, never linked.
# Not SA1019, use of what is deprecated: what the SDK calls deprecated is what the legacy era consists of.
RIE         := github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@v0.0.0-20261030222936-bef5c4ba774d
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

NODE_PACKAGES   := test/node/node_modules/.installed
PYTHON_PACKAGES := test/python/.venv/.installed
DEPLOY_PACKAGES := deploy/.venv/.installed

.DEFAULT_GOAL := help
.PHONY: help run dev test conformance soak bench latency fuzz lint lambda coldstart image sam

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## start examples/quickstart on http://127.0.0.1:8080/mcp and print a command to try it
	@go run ./examples/quickstart

dev: $(NODE_PACKAGES) ## two instances behind one port, with the store's emulator: PORT=8080 STORE=dynamodb
	@go run ./internal/cmd/dev

test: $(NODE_PACKAGES) $(PYTHON_PACKAGES) $(DEPLOY_PACKAGES) bin/aws-lambda-rie ## all tests and a few seconds of fuzzing; REQUIRE=all fails where something is missing
	@go run ./internal/cmd/checks

conformance: $(NODE_PACKAGES) ## the official suite, both eras, over INSTANCES=3 processes on STORE=dynamodb; FRONT=url STREAMING=1: as Lambda events
	@go run ./internal/cmd/conformance

soak: $(NODE_PACKAGES) ## load and faults for SOAK_SECONDS=120 on STORE=dynamodb; counts calls, lost, doubled, wrong
	@go run ./internal/cmd/soak

bench: ## one call in Hydrant, in the official SDK's handlers and in mcp-go, side by side, with ratios
	@go run ./internal/cmd/bench

latency: $(NODE_PACKAGES) ## how long an answer to a question takes to another instance, and what waiting costs
	@go run ./internal/cmd/latency

fuzz: ## every fuzz target for FUZZ_SECONDS=30
	@go run ./internal/cmd/fuzz

lambda: ## dist/lambda/EXAMPLE/bootstrap (arm64) and EXAMPLE-amd64/bootstrap, a zip beside each
	@go run ./internal/cmd/buildlambda

coldstart: ## process start to first poll of the quickstart on Lambda, and its size
	@go run ./internal/cmd/coldstart

image: ## a container image of PACKAGE=./examples/notes/cloudrun; PREBUILT=1 builds the binary here and needs no registry
	@deploy/image.sh hydrant-notes

sam: ## build template.yaml with SAM
	GOFLAGS="-tags=lambda.norpc '-ldflags=-s -w'" sam build

lint: ## gofmt, go vet, staticcheck, govulncheck; GOVULNDB=URL: a mirror of its database
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w is needed on:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) -checks inherit,-SA1019 ./...
	@echo "govulncheck ./..."; found=$$(go run $(GOVULNCHECK) $(addprefix -db ,$(GOVULNDB)) ./... 2>&1) || { \
		echo "$$found"; \
		case "$$found" in \
			*"fetching vulnerabilities"*) echo "govulncheck left out: its database cannot be reached from here." ;; \
			*) exit 1 ;; \
		esac; }

# A package manager that is missing or fails is no error here: the tests that need the packages say so.
$(NODE_PACKAGES): test/node/package.json test/node/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "npm ci in test/node"; \
		(cd test/node && npm ci --no-audit --no-fund --loglevel=error) && touch $@ || echo "npm ci failed"; \
	fi

$(PYTHON_PACKAGES): test/python/requirements.txt
	@if command -v python3 >/dev/null; then \
		echo "pip install in test/python/.venv"; \
		python3 -m venv test/python/.venv && test/python/.venv/bin/pip install --quiet --disable-pip-version-check \
			--require-hashes -r test/python/requirements.txt && touch $@ || echo "pip install failed"; \
	fi

# pip's hash mode refuses pins that have extras, hence --no-deps: the list is complete.
$(DEPLOY_PACKAGES): deploy/requirements.txt
	@if command -v python3 >/dev/null; then \
		echo "pip install in deploy/.venv"; \
		python3 -m venv deploy/.venv && deploy/.venv/bin/pip install --quiet --disable-pip-version-check \
			--no-deps --require-hashes -r deploy/requirements.txt && touch $@ || echo "pip install failed"; \
	fi

bin/aws-lambda-rie:
	@GOBIN=$(CURDIR)/bin CGO_ENABLED=0 go install $(RIE) || echo "aws-lambda-rie could not be built"
