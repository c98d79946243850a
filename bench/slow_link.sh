#!/bin/sh
# usage: bench/slow_link.sh [-r RATE] COMMAND...
#
# Two ranks of a command on two hosts that a slow link joins, as `zinc train ...` with its flags:
# two network namespaces of this machine, a pair of virtual interfaces between them, and RATE
# (default: 1gbit) in each direction. Needs root, ip, tc and OpenMPI. What it makes
# ends with it, however it ends.
set -eu
rate=1gbit
while getopts r: option; do
  case $option in
    r) rate=$OPTARG ;;
    *) exit 64 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,3p' "$0" >&2 && exit 64; }
[ "$(id -u)" -eq 0 ] || { echo "slow_link.sh: namespaces need root" >&2 && exit 77; }

name=zinc$$
work=$(mktemp -d)
clean() {
  for side in a b; do
    ip netns pids "$name$side" 2>/dev/null | xargs -r kill 2>/dev/null || true
    ip netns del "$name$side" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ip link add "${name}v0" type veth peer name "${name}v1"
number=1
for side in a b; do
  ip netns add "$name$side"
  ip link set "${name}v$((number - 1))" netns "$name$side"
  ip netns exec "$name$side" ip addr add "10.201.77.$number/24" dev "${name}v$((number - 1))"
  ip netns exec "$name$side" ip link set "${name}v$((number - 1))" up
  ip netns exec "$name$side" ip link set lo up
  ip netns exec "$name$side" tc qdisc add dev "${name}v$((number - 1))" root tbf \
    rate "$rate" burst 256kb latency 100ms
  number=$((number + 1))
done

# What mpirun calls in place of ssh: agent HOST COMMAND...
cat >"$work/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec ${name}b unshare -upf --mount-proc --kill-child sh -c 'hostname zincb; exec sh -c "\$*"' sh "\$@"
AGENT
chmod +x "$work/agent"
printf '10.201.77.1 slots=1\n10.201.77.2 slots=1\n' >"$work/hosts"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# shellcheck disable=SC2016 # the inner shell expands it
ip netns exec "${name}a" unshare -u sh -c 'hostname zinca; exec "$@"' sh \
  mpirun -np 2 --hostfile "$work/hosts" --map-by ppr:1:node --bind-to none \
  --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca pml ob1 \
  --mca btl_tcp_if_include 10.201.77.0/24 --mca oob_tcp_if_include 10.201.77.0/24 \
  -x OMP_NUM_THREADS "$@"
