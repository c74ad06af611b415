#!/bin/bash
# kill -9 of a rank at 50 random moments of a run: nothing is lost, nobody waits longer than 30 s,
# and the end has the bytes of a run that was never stopped. And a rank without memory, at 21
# places: all end with its exit code.
. "$(dirname "$0")/lib.sh"

need_mpi 7
small=(--device cpu --text-bytes 200000 --layers 1 --width 16 --heads 2 --train-length 16 --batch 3
    --accumulate 12 --schedule constant --save-every 7 --eval-every 0 --warmup 2 --dropout 0.1
    --deterministic-sum --quiet --out)
ranks() { pgrep -r D,R,S,T -P "$launcher" alibi; } # not those that mpirun has not reaped yet
alive() { ranks > /dev/null; }
RANDOM=17
longest=0
lost=0
saved=0
for i in $(seq 50); do
    mpirun -n $((2 + i % 3)) --oversubscribe "$program" train "${small[@]}" killed --resume \
        --steps 100000 > stdout 2> stderr < /dev/null &
    launcher=$!
    wait_for alive
    sleep "$((RANDOM % 3)).$((RANDOM % 10))"
    victims=($(ranks))
    [ ${#victims[@]} = 0 ] || kill -KILL "${victims[RANDOM % ${#victims[@]}]}"
    # Naps are counted, not seconds: the clock of a machine that is suspended runs on.
    naps=0
    while alive && [ $naps -lt 1200 ]; do
        sleep 0.05
        naps=$((naps + 1))
    done
    [ $naps -le $longest ] || longest=$naps
    # OpenMPI 4.1's mpirun may stay when a rank dies while it connects.
    (sleep 5 && kill -KILL $launcher) 2> /dev/null &
    wait $launcher
    # A folder without a manifest is a save that was killed, and no checkpoint.
    newest=$(ls -d killed/step-*/manifest.json 2> /dev/null | grep -v old | tail -n 1 |
        sed 's/.*step-0*//; s/[^0-9].*//')
    [ "${newest:-0}" -ge "$saved" ] || lost=$((lost + 1))
    saved=${newest:-0}
done
check "50 kills: no wait of 30 s (longest $((longest / 20)) s)" test "$longest" -lt 600
check "50 kills: no checkpoint was lost (step $saved is saved)" test "$lost" = 0
steps=$((saved + 3))
check "3 ranks end the run" mpirun -n 3 --oversubscribe "$program" train "${small[@]}" killed \
    --resume --steps $steps
check "one process, never stopped" "$program" train "${small[@]}" whole --steps $steps
check "the same bytes" diff -r "$(newest killed)" "$(newest whole)"
check "the same log" cmp killed/log.jsonl whole/log.jsonl
# Layers of more than a million numbers, which are sent while the backward pass goes on.
large=(train --device cpu --text-bytes 100000 --layers 3 --width 256 --heads 2 --ff-width 2048
    --train-length 16 --batch 1 --accumulate 4 --warmup 1 --eval-every 0 --steps 2 --quiet --out)
others=""
for i in $(seq 1 7 141); do
    timeout 120 mpirun --oversubscribe -n 1 "$program" "${large[@]}" m$i : \
        -n 1 env ALIBI_FAULT=memory:$i "$program" "${large[@]}" m$i > stdout 2> stderr
    status=$?
    [ $status = 4 ] || others="$others $i:$status"
done
check "no memory at one rank: exit code 4 at all places but these:$others" test -z "$others"
finish
