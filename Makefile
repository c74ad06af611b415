# make [program] | demo | test | test-all | bench | install | format | clean
#
# Each target does all of its set-up, on a bare Debian 12 too: it installs missing packages and
# builds what it needs. Other systems: docs/install.md. With WERROR=ON warnings are errors.
PREFIX ?= /usr/local
SEED ?= 1
ALIBI := build/release/alibi
# On a terminal ninja shows how far it is; elsewhere it prints only what goes wrong.
NINJA_FLAGS := $(if $(MAKE_TERMOUT),,--quiet)

.PHONY: program build demo test test-all bench install format check-format clean packages

program: packages
	@cmake --preset release > /dev/null
	@echo "building alibi"
	@cmake --build --preset release --target alibi -- $(NINJA_FLAGS)

# Without what the tests need, everything else is built.
build: packages
	@scripts/packages.sh test || true
	@cmake --preset release | grep 'not built' || true
	@echo "building alibi and its tests"
	@cmake --build --preset release -- $(NINJA_FLAGS)

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

# A DESTDIR is prepended to all paths, and the loader is not told: that is for makers of packages.
install: packages
	@cmake --preset release -D CMAKE_INSTALL_PREFIX=$(PREFIX) > /dev/null
	@echo "building alibi and its library"
	@cmake --build --preset release --target alibi alibi_shared -- $(NINJA_FLAGS)
	@cmake --install build/release
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

packages:
	@scripts/packages.sh

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

check-format:
	@scripts/check_layout.sh format

clean:
	rm -rf build
