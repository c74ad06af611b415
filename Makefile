# make [program] | demo | test | test-all | bench | install | format | clean
#
# Each target does all of its set-up, on a bare Debian 12 too: it installs missing packages and
# builds what it needs.
PREFIX ?= /usr/local
SEED ?= 1
ALIBI := build/release/alibi

.PHONY: program build demo test test-all bench install format check-format clean packages

program: packages
	@cmake --preset release > /dev/null
	@echo "building alibi"
	@cmake --build --preset release --target alibi -- --quiet

build: packages
	@cmake --preset release > /dev/null
	@echo "building alibi and its tests"
	@cmake --build --preset release -- --quiet

demo: program
	$(ALIBI) compare --seed $(SEED) --out runs/demo-$(SEED)

# The fast tests: under five minutes on two cores, with the build.
test: build
	@scripts/test.sh

# The slow tests and the sanitizers as well.
test-all: test
	@scripts/test.sh more

bench: program
	@bench/run.sh

install: packages
	@cmake --preset release -D CMAKE_INSTALL_PREFIX=$(PREFIX) > /dev/null
	@cmake --build --preset release --target alibi alibi_shared -- --quiet
	@cmake --install build/release

packages:
	@scripts/packages.sh

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

check-format:
	@scripts/check_layout.sh format

clean:
	rm -rf build
