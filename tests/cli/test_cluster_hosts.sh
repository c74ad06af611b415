#!/bin/bash
# Ranks on several hosts, which are network namespaces of this machine: each has a name, an address
# and mounts of its own. The bytes of one process, a host that is cut off, a rank that dies, a host
# without the text, one with another version.
#
# The script runs itself again where nothing outside can be met or left behind: in network, mount
# and process namespaces of its own, which end with it.
if [ -z "${CLUSTER_HOSTS-}" ]; then
    can='mount -t tmpfs none /run && ip link add switch type bridge && ip netns add a &&
        ip link add to-a type veth peer name eth0 netns a &&
        ip netns exec a unshare --uts --mount hostname a'
    for how in "" -r; do # as root, or as a user who may be root in there
        apart=(unshare $how --net --mount --pid --fork --kill-child --mount-proc)
        "${apart[@]}" sh -c "$can" 2> /dev/null && CLUSTER_HOSTS=yes exec "${apart[@]}" bash "$0"
    done
    CLUSTER_HOSTS=no
fi
. "$(dirname "$0")/lib.sh"

tests=15
need_mpi $tests
if [ "$CLUSTER_HOSTS" = no ]; then
    skip $tests "no network namespaces"
    finish
fi

# ---- three hosts on a switch; mpirun is at the switch, and reaches them without ssh

mount -t tmpfs none /run
ip link set lo up
ip link add switch type bridge
ip addr add 10.0.0.1/24 dev switch
ip link set switch up
number=1
for host in a b c; do
    number=$((number + 1))
    ip netns add $host
    ip link add to-$host type veth peer name eth0 netns $host
    ip link set to-$host master switch up
    ip -n $host addr add 10.0.0.$number/24 dev eth0
    ip -n $host link set eth0 up
    ip -n $host link set lo up
done
mkdir text other mpi
yes "a text to train on" | head -n 4000 > text/text.txt
# In place of ssh. Host c does not have what is in text/.
cat > agent << END
#!/bin/bash
host=\$1
shift
exec ip netns exec \$host unshare --uts --mount sh -c "hostname \$host
    [ \$host != c ] || mount -t tmpfs none '$folder/text'
    \$*"
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$folder/agent OMPI_MCA_plm_rsh_no_tree_spawn=1
export ALIBI_RANK_TIMEOUT=10
small=(--device cpu --text-bytes 200000 --layers 1 --width 16 --heads 2 --train-length 16 --batch 3
    --accumulate 12 --schedule constant --save-every 1 --eval-every 0 --warmup 2 --dropout 0.1
    --deterministic-sum --quiet --steps 100000 --out)
launch=(timeout -k 5 240 mpirun -x ALIBI_RANK_TIMEOUT --wdir "$folder" --host)
on() { # HOSTS, then the arguments of train
    "${launch[@]}" "$1" "$program" train "${@:2}"
}
begin() { # RUN: three hosts train until something happens
    "${launch[@]}" a,b,c "$program" train "${small[@]}" "$1" > said 2> words < /dev/null &
    launcher=$!
    check "$1: three hosts train" wait_for grep -qs '"step": 3,' "$1/log.jsonl"
}
rank_at() { # HOST: of its processes
    for pid in $(ip netns pids "$1"); do
        grep -qx alibi /proc/"$pid"/comm 2> /dev/null && echo "$pid"
    done
}
gone() { [ -z "$(rank_at "$1")" ]; }

# ---- a host is cut off: all ranks end, and two hosts resume

begin cut
ip link set to-c down
check "cut off: rank 0 ends" wait_for gone a
check "cut off: the other ranks end" eval "wait_for gone b && wait_for gone c"
# mpirun waits for its daemon on the host that it cannot reach.
kill -KILL "$(pgrep -P $launcher)"
wait $launcher 2> /dev/null
check "cut off: a line names rank and host" grep -q \
    '^alibi: train: rank 2 on .c. has given no sign of life' words
check "cut off: no other line" test "$(grep -c '^alibi: ' words)" = 1
saved=$(newest cut | sed 's/.*step-0*//')
steps=$((saved + 3))
check "2 hosts resume" on a,b "${small[@]}" cut --resume --steps $steps
check "one process, never cut off" "$program" train "${small[@]}" whole --steps $steps
check "the bytes of one process" diff -r -x timing.json -x lock cut whole
ip link set to-c up
refused() { ip netns exec c bash -c ': > /dev/tcp/10.0.0.1/9' 2>&1 | grep -q refused; }
check "the host is back" wait_for refused # at first there is no route

# ---- a rank dies

begin killed
kill -KILL "$(rank_at c)"
wait $launcher
code=$?
check "killed: mpirun fails" test $code != 0
check "killed: by itself" test $code != 124 -a $code != 137 # those of timeout
check "killed: nobody is left" eval "wait_for gone a && wait_for gone b"

# ---- hosts that differ

expect_ranks 3 "train: rank 2 on 'c': cannot open 'text/text.txt'" on a,b,c text/text.txt \
    "${small[@]}" wrong
version=$("$program" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
LC_ALL=C sed "s/${version//./\\.}/9.9.9/g" "$program" > other/alibi
chmod +x other/alibi
cp "$(dirname "$program")/libalibi_mpi.so" other
expect_ranks 2 "rank 1 on 'b' has another version of alibi than rank 0 on 'a'" \
    "${launch[@]}" a -n 1 "$program" train "${small[@]}" wrong : \
    --host b -n 1 other/alibi train "${small[@]}" wrong

finish
