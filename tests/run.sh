#!/usr/bin/env bash
# Runs every test there is, as CI does: format, lints, Rust tests and doc tests, and the peers (real clients in Python,
# JavaScript and Rust, the Python harness, an A2A agent, MCP's conformance suite, a browser, Compose's schema). Installs
# what is missing on the way: Debian packages when it may, the pinned peers into .cache/. Whatever commands are given are
# run and counted as well. Ends with one line, `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# once NAME COMMAND…: a command that counts as one check.
once() {
    echo "== $1"
    if "${@:2}"; then
        passed=$((passed + 1))
    else
        echo "FAIL $1" && failed=$((failed + 1))
    fi
}

# counted NAME COMMAND…: a command that counts for itself, in cargo's words or in ours. One that fails counts a failure
# even when it says nothing.
counted() {
    echo "== $1"
    "${@:2}" 2>&1 | tee "$log"
    local status=$? good bad
    good=$(sed -nE 's/^test result: [^ ]+ ([0-9]+) passed; .*/\1/p; s/^([0-9]+) passed, [0-9]+ failed$/\1/p' "$log" | paste -sd+)
    bad=$(sed -nE 's/^test result: .* passed; ([0-9]+) failed; .*/\1/p; s/^[0-9]+ passed, ([0-9]+) failed$/\1/p' "$log" | paste -sd+)
    passed=$((passed + ${good:-0}))
    failed=$((failed + ${bad:-0}))
    if [ $((${bad:-0})) -eq 0 ] && { [ $status -ne 0 ] || [ $((${good:-0})) -eq 0 ]; }; then
        echo "FAIL $1: exit status $status" && failed=$((failed + 1))
    fi
}

missing=()
command -v cc >/dev/null || missing+=(build-essential)
command -v python3 >/dev/null || missing+=(python3)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v npm >/dev/null || missing+=(npm)
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
command -v chromium >/dev/null || missing+=(chromium)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get -qq update
        # One at a time: what cannot be had keeps nothing else out, and its own test says so.
        for package in "${missing[@]}"; do
            DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$package" >/dev/null
        done
    else
        echo "these Debian packages are missing, and installing them takes root: ${missing[*]}" >&2
    fi
fi

once 'format' cargo fmt --all --check
once 'lints' cargo clippy --locked --workspace --all-targets -- -D warnings
once 'build' cargo build --locked --workspace --bins
counted 'tests and doc tests' cargo test --locked --workspace --no-fail-fast
counted 'peers' python3 tests/peers/run.py
# Last, for it leaves the programs built with every feature. The whole workspace, so that nothing else is built anew.
once 'lints of all features' cargo clippy --locked --workspace --all-features --all-targets -- -D warnings
counted 'traces, unit' cargo test --locked --workspace --all-features --lib telemetry
counted 'traces' cargo test --locked --workspace --all-features --test otel
for command in "$@"; do
    counted "$command" bash -c "$command"
done

echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
