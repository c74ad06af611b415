# make [program] | demo | test | test-all | bench | install | uninstall | deb | wheel |
#      format | clean
#
# Each target does all of its set-up, on a bare Debian 12 too: it installs missing packages and
# builds what it needs. Other systems: docs/install.md. With WERROR=ON warnings are errors.
PREFIX ?= /usr/local
SEED ?= 1
ALIBI := build/release/alibi

.PHONY: program build demo test test-all bench install uninstall deb wheel format \
    check-format clean packages

program: packages
	@cmake --preset release > /dev/null
	@echo "building alibi"
	@scripts/build.sh alibi

# Without what the tests need, everything else is built.
build: packages
	@scripts/packages.sh test || true
	@cmake --preset release | grep 'not built' || true
	@echo "building alibi and its tests"
	@scripts/build.sh

# By default compare tests more tokens: smaller errors, and the same picture.
demo: program
	$(ALIBI) compare --seed $(SEED) --eval-tokens 12k --sliding-tokens 12k --out runs/demo-$(SEED)
	$(ALIBI) reproduce demo-chain --tier cpu --out runs/demo-chain

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
	@scripts/build.sh alibi alibi_shared manual
	@cmake --install build/release > /dev/null
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig
	@echo "installed $(DESTDIR)$(PREFIX)/bin/alibi, its library, manual, recipes and experiments"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) [ -n "$(DESTDIR)" ] || \
	    echo '$(PREFIX)/bin is not on your PATH: export PATH="$(PREFIX)/bin:$$PATH"' ;; esac

# From the same PREFIX, and DESTDIR if one was given; needs no build folder.
uninstall:
	@scripts/uninstall.sh $(DESTDIR)$(PREFIX)
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

# build/alibi_VERSION_ARCHITECTURE.deb
deb: packages
	@scripts/packages.sh deb
	@cmake --preset release > /dev/null
	@echo "building alibi and its library"
	@scripts/build.sh alibi alibi_shared manual
	@packaging/debian/build.sh build/release build

# build/alibi-VERSION-py3-none-linux_ARCHITECTURE.whl: the Python package with the library in it
wheel: packages
	@scripts/packages.sh wheel
	@cmake --preset release > /dev/null
	@echo "building alibi's library"
	@scripts/build.sh alibi_shared
	@ALIBI_BUILD=build/release python3 python/backend.py build

packages:
	@scripts/packages.sh

format:
	@git ls-files -co --exclude-standard '*.c' '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

check-format:
	@scripts/check_layout.sh format

clean:
	rm -rf build
