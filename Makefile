# make demo | test | bench | install | format | clean: each does all its set-up, on a bare Debian 12 too.
PREFIX ?= /usr/local
SEED ?= 1
ALIBI := build/release/alibi

.PHONY: program build demo test bench install format check-format clean packages

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

test: build
	@scripts/test.sh

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
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror

clean:
	rm -rf build
