# make demo | test | bench | install: each does all its set-up, on a bare Debian 12 too.
PREFIX ?= /usr/local
SEED ?= 1
ALIBI := build/release/alibi

.PHONY: build demo test bench install format check-format clean packages

build: packages
	@cmake --preset release > /dev/null
	@cmake --build --preset release

demo: build
	$(ALIBI) compare --recipe recipes/demo.json --seed $(SEED) --out runs/demo-$(SEED)

test: build
	@scripts/test.sh

bench: build
	@bench/run.sh

install: build
	cmake --install build/release --prefix $(PREFIX)

packages:
	@scripts/packages.sh

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

check-format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format --dry-run --Werror

clean:
	rm -rf build
