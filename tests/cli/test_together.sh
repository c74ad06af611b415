#!/bin/bash
# What several processes do together that is no training: they evaluate and compare with the numbers
# of one process, speak with one voice, and refuse what they cannot divide.
. "$(dirname "$0")/lib.sh"

need_mpi 8
ranks() { # N, then the arguments of the program
    mpirun -n "$1" --oversubscribe "$program" "${@:2}"
}
refuse() { # CODE PATTERN COMMAND...: one line of ours, among those of mpirun
    run "${@:3}"
    if [ "$code" != "$1" ]; then
        fail "$1 $2" "exit code $code"
    elif [ "$(grep -c '^alibi: ' stderr)" != 1 ] || ! grep -qE "^alibi: $2" stderr; then
        fail "$1 $2" "another message"
    else
        pass "$1 $2"
    fi
}

# ---- one voice

check "one version" ranks 3 --version
check "printed once" test "$(wc -l < stdout)" = 1
refuse 2 "no command 'trian'; did you mean 'train'" ranks 2 trian
refuse 2 "train: unknown option '--stepps'" ranks 3 train --stepps 3
refuse 2 "generate: 2 processes were started, and this command does not divide" ranks 2 \
    generate none --prompt x
refuse 2 "plan: 3 processes were started" ranks 3 plan
refuse 2 "train: rank 1 on '.*': unknown option '--no'" mpirun --oversubscribe -n 1 "$program" \
    train --device cpu "${tiny[@]}" --out odd : -n 1 "$program" train --no
check "nothing was left" test ! -e odd

finish
