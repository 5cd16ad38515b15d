#!/bin/sh
# Compile the C core with more warnings than Cython's generated code could stand, and stop at the first.
set -eu
cd "$(dirname "$0")/.."
for source in csrc/*.c; do
    ${CC:-cc} -std=c11 -O2 -c -o /dev/null -Werror -Wall -Wextra -Wpedantic -Wshadow -Wconversion \
        -Wstrict-prototypes -Wmissing-prototypes -Wvla -Icsrc -Icsrc/include "$source"
done
