#!/usr/bin/env bash
# Usage: build_zstd.sh PREFIX. Installs libzstd.a into PREFIX: position independent, with hidden symbols.
set -euo pipefail
. "$(dirname "$0")/source_package.sh"

prefix="$1"
work="$prefix.work"
rm -rf "$work" "$prefix"
mkdir -p "$work"
(fetch_source libzstd 1.5. "$work")
# The headers of zstd would export every function; the three macros are their way of saying no.
cmake -S "$work/src/build/cmake" -B "$work/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
  -DCMAKE_C_FLAGS="-DZSTDLIB_VISIBLE= -DZSTDERRORLIB_VISIBLE= -DZDICTLIB_VISIBLE= -fvisibility=hidden" \
  -DZSTD_BUILD_STATIC=ON -DZSTD_BUILD_SHARED=OFF -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_TESTS=OFF \
  -DZSTD_LEGACY_SUPPORT=OFF -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$work/prefix"
cmake --build "$work/build"
cmake --install "$work/build"
mv "$work/prefix" "$prefix"
rm -rf "$work"
