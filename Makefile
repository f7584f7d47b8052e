# SPDX-License-Identifier: Apache-2.0
# make demo    install what is missing, build, run the main job on the test internet, show what was allowed and denied
# make check   the same, then all tests
# make build   the program at build/penstock
# make bench   benchmarks, each line with its ratio and target; as root, BENCH_OPTIONS as of tools/bench
# make fuzz    every fuzz target with libFuzzer, FUZZ_SECONDS each
# make asan    all tests under AddressSanitizer and UndefinedBehaviorSanitizer
FUZZ_SECONDS ?= 60

all: build

build/build.ninja: meson.build
	tools/install build
	meson setup build --buildtype=debugoptimized

build: build/build.ninja
	ninja -C build

demo:
	tools/install demo
	$(MAKE) build
	tools/demo build/penstock

check: demo
	tools/install test
	tools/check build

asan:
	tools/install test
	test -e build-asan/build.ninja || meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false
	ninja -C build-asan
	PENSTOCK_TEST_KINDS=user tools/check build-asan

bench: build
	tools/install bench
	tools/bench build $(BENCH_OPTIONS)

fuzz:
	tools/install test
	tools/fuzz $(FUZZ_SECONDS)

install: build
	meson install -C build

clean:
	rm -rf build build-asan build-clang build-fuzz

.PHONY: all build demo check asan bench fuzz install clean
