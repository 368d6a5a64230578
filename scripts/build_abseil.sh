#!/usr/bin/env bash
# Usage: build_abseil.sh PREFIX. Installs abseil into PREFIX: static, position independent, with hidden symbols.
set -euo pipefail
. "$(dirname "$0")/source_package.sh"

prefix="$1"
work="$prefix.work"
rm -rf "$work" "$prefix"
mkdir -p "$work"
(fetch_source abseil 20220623 "$work")
cmake -S "$work/src" -B "$work/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF \
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON \
  -DABSL_PROPAGATE_CXX_STD=ON -DABSL_ENABLE_INSTALL=ON \
  -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$work/prefix"
cmake --build "$work/build"
cmake --install "$work/build"
mv "$work/prefix" "$prefix"
rm -rf "$work"
