#!/bin/bash
# Ranks that Slurm starts: the bytes of one process, a rank that dies, a job that is stopped, starts
# again and ends as if it had never been, and srun without PMIx. The cluster is this machine, and
# Slurm's daemons run in the folder of this test, without rights that the user does not have.
. "$(dirname "$0")/lib.sh"

tests=21
PATH=$PATH:/usr/sbin:/sbin
need_mpi $tests
for tool in munged slurmctld slurmd srun sbatch; do
    if ! command -v $tool > /dev/null; then
        skip $tests "no Slurm"
        finish
    fi
done

# ---- the cluster

chmod 755 "$folder" # munged wants to be reached
mkdir munge state spool log
head -c 128 /dev/urandom > munge/key
chmod 600 munge/key
host=$(hostname -s)
user=$(id -un)
port=$((20000 + $$ % 20000 * 2))
cat > slurm.conf << END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
KillWait=20
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
END
export SLURM_CONF=$folder/slurm.conf
daemons=()
begin_daemon() { # COMMAND...
    "$@" > "log/$1" 2>&1 < /dev/null &
    daemons+=($!)
}
trap 'scancel --quiet --user "$user" 2> /dev/null; kill "${daemons[@]}" 2> /dev/null; wait
    rm -rf "$folder"' EXIT
begin_daemon munged --foreground --force --key-file="$folder/munge/key" \
    --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
wait_for test -S munge/socket
begin_daemon slurmctld -D
begin_daemon slurmd -D -N "$host"
idle() { [ "$(sinfo -h -o %T 2> /dev/null)" = idle ]; }
if ! wait_for idle || ! srun --mpi=list 2>&1 | grep -q pmix; then
    cat log/*
    skip $tests "Slurm does not run here, or has no PMIx"
    finish
fi

small=(--device cpu --text-bytes 200000 --layers 1 --width 16 --heads 2 --train-length 16 --batch 3
    --accumulate 12 --save-every 1000000 --eval-every 0 --warmup 2 --dropout 0.1
    --schedule constant --deterministic-sum --quiet)
ranks() { # N, then the arguments of train
    srun --mpi=pmix --overcommit -n "$1" "$program" train "${@:2}"
}
same_runs() { diff -r -x timing.json -x lock "$1" "$2" > stdout 2> stderr; }
queue() { squeue -h -j "$1" 2> /dev/null; }
over() { ! queue "$1" | grep -q .; }

# ---- the bytes of one process

check "one process" "$program" train "${small[@]}" --steps 6 --out one
check "3 ranks" ranks 3 "${small[@]}" --steps 6 --out three
check "3 ranks: the bytes of one process" same_runs one three
expect_ranks 2 "srun started 3 processes without connecting them: use srun --mpi=pmix" \
    srun --overcommit -n 3 "$program" train "${small[@]}" --steps 6 --out apart
check "srun without PMIx: nothing was trained" test ! -e apart
check "srun without PMIx: processes that work alone" srun --overcommit -n 2 bash -c \
    "unset SLURM_STEP_NUM_TASKS; exec $program train ${small[*]} --steps 2 --out own\$SLURM_PROCID"
check "each has its own" same_runs own0 own1

# ---- a rank dies: the others end soon, and the run resumes

ranks 3 "${small[@]}" --save-every 1 --steps 100000 --out killed > stdout 2> words < /dev/null &
step=$!
check "killed: 3 ranks train" wait_for grep -qs '"step": 3,' killed/log.jsonl
process_of() { # RANK, RUN
    local pid
    for pid in $(pgrep -u "$user" -x alibi); do
        grep -qzx "SLURM_PROCID=$1" /proc/"$pid"/environ 2> /dev/null &&
            grep -qzx "$2" /proc/"$pid"/cmdline && echo "$pid"
    done
}
begun=$SECONDS
kill -KILL "$(process_of 2 killed)"
wait $step
code=$?
check "killed: srun fails" test $code != 0
check "killed: within 40 s" test $((SECONDS - begun)) -lt 40
gone() { [ -z "$(process_of "$1" killed)" ]; }
check "killed: nobody is left" eval "wait_for gone 0 && wait_for gone 1"
saved=$(newest killed | sed 's/.*step-0*//')
check "killed: 2 ranks resume" ranks 2 "${small[@]}" --steps $((saved + 1)) --resume --out killed

# ---- a job that is stopped is queued again, and ends with the bytes of one that never was

cat > job << END
#!/bin/bash
#SBATCH -n 3 --overcommit --requeue --open-mode=append --signal=TERM@120 -o $folder/job.out
cd $folder
srun --mpi=pmix $program train ${small[*]} --steps \$(cat steps) --out job1 --resume
code=\$?
echo "attempt \${SLURM_RESTART_COUNT:-0}: \$code"
[ \$code != 75 ] || scontrol requeue \$SLURM_JOB_ID
END
echo 1000000 > steps
job=$(sbatch --parsable job)
check "requeued: it trains" wait_for grep -qs '"step": 3,' job1/log.jsonl
scancel --signal=TERM "$job"
check "requeued: it saves and ends with 75" wait_for grep -qs 'attempt 0: 75' job.out
check "requeued: one line says so" test "$(grep -c 'train: stopped at step' job.out)" = 1
saved=$(newest job1 | sed 's/.*step-0*//')
echo $((saved + 3)) > steps
# Slurm keeps it for as long as credentials are valid, or two minutes.
again() { wait_for grep -qs 'attempt 1: 0' job.out; }
check "requeued: it starts again by itself" eval "again || again"
check "requeued: it is over" wait_for over "$job"
check "one process, never stopped" "$program" train "${small[@]}" --steps $((saved + 3)) --out whole
rm -rf "job1/step-"*"$saved" # the one that it saved when it was stopped
check "requeued: the bytes of a run that was never stopped" same_runs job1 whole

# ---- a batch script is one process: what it runs itself works alone

cat > script << END
#!/bin/bash
#SBATCH -n 3 --overcommit -o $folder/script.out
cd $folder
$program train ${small[*]} --steps 6 --out script1
echo "ended with \$?"
END
job=$(sbatch --parsable script)
check "a batch script: alone" wait_for grep -qs 'ended with 0' script.out
check "a batch script: the bytes of one process" same_runs one script1

finish
