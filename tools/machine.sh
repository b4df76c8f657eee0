# What this machine offers; sourced by the other scripts, which run in the repository's root.
# shellcheck shell=bash

say() { printf '\n== %s\n' "$*"; }
fail() { printf '%s: %s\n' "${0##*/}" "$1" >&2; exit "${2:-1}"; }

# at_least HAVE WANT: whether version HAVE is WANT or newer.
at_least() { [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]; }

# Prints the path of a CUDA compiler that can build the Hopper kernels (>= 12.4); fails without one.
find_nvcc() {
    local candidate version
    for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
        [[ -n "$candidate" && -x "$candidate" ]] || continue
        version=$("$candidate" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
        if [[ -n "$version" ]] && at_least "$version" 12.4; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# project_files PATH...: the files under the paths that git tracks, and new ones that it does not ignore. An unpacked
# archive has no git, and these folders hold only the project's files.
project_files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@"
    else
        find "$@" -type f
    fi | sort -u
}

has_hopper_gpu() {
    command -v nvidia-smi >/dev/null || return 1
    grep -qx '9\.0' <<<"$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null)"
}

# Prints a Python that can draw (has matplotlib); fails without one. tools/plotting.py looks in the same places.
find_plotting_python() {
    local candidate
    for candidate in python3 /usr/bin/python3 build/venv/bin/python; do
        if "$candidate" -c 'import matplotlib' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# The formatter's output differs between releases, so the project pins one. Prints its path; fails without one.
CLANG_FORMAT_VERSION=14
find_clang_format() {
    local candidate
    for candidate in "clang-format-$CLANG_FORMAT_VERSION" build/venv/bin/clang-format clang-format; do
        if [[ "$("$candidate" --version 2>/dev/null)" == *"version $CLANG_FORMAT_VERSION."* ]]; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}
