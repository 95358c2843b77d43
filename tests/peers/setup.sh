#!/bin/sh
# Installs what the peers need under .cache/peers at the root of the repository: three Python virtual environments and a
# node_modules, each in a folder named after a hash of the files that pin it, so that nothing is done when nothing changed.
# Prints one `NAME=PATH` line each. Needs python3 with venv, and npm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=$(cd "$here/../.." && pwd)/.cache/peers
python=${PYTHON:-python3}
mkdir -p "$cache"

# fresh NAME FILE…: prints the folder for NAME as these files pin it, and fails when it is not complete yet.
fresh() {
    name=$1
    shift
    folder="$cache/$name-$(cat "$@" | sha256sum | cut -c1-16)"
    echo "$folder"
    test -e "$folder/complete"
}

# Whatever an interrupted run left, and what older pins made, goes away first.
renew() {
    name=$(basename "$1")
    rm -rf "$cache/${name%-*}"-*
    mkdir -p "$1"
    echo "installing $name" >&2
}

venv() {
    folder=$(fresh "$1" "$here/requirements-$1.txt") || {
        renew "$folder"
        "$python" -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/requirements-$1.txt" >&2
        touch "$folder/complete"
    }
    echo "$1=$folder/bin/python"
}

venv framework
venv mcp2
venv compose

folder=$(fresh node "$here/package.json" "$here/package-lock.json") || {
    renew "$folder"
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$folder"
    # Not `npm ci`: one of the tree's optional packages for Windows is not published, and `ci` takes that for a stale lock.
    (cd "$folder" && npm install --no-save --ignore-scripts --loglevel=error >&2)
    touch "$folder/complete"
}
echo "modules=$folder/node_modules"

# The Inspector and the conformance suite need Node 22; where the machine's own is older, npm brought one along.
node=$(command -v node || true)
case $("${node:-false}" --version 2>/dev/null || true) in
    v2[2-9].* | v[3-9][0-9].*) ;;
    *) for packed in "$folder"/node_modules/node-linux-*/bin/node; do node=$packed; done ;;
esac
test -x "$node" || { echo "no Node 22 or newer, and npm has none for this machine" >&2; exit 1; }
echo "node=$node"
