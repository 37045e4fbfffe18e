#!/bin/sh
# Starts processes by mpirun of Open MPI as if each had a machine of its own: N network namespaces with a cable each to one switch,
# with their own host names, System V memory and /dev/shm. Needs user namespaces, no root.
#
# apart.sh N MPIRUN WORD...
set -e
network=10.213.0
if [ "$APART" = agent ]; then # what mpirun starts instead of ssh: HOST COMMAND...
    host=$1
    shift
    exec ip netns exec "$host" unshare --uts --mount --ipc sh -c "hostname $host; mount -t tmpfs none /dev/shm; $*"
elif [ "$APART" != inside ]; then
    APART=inside exec unshare --user --map-root-user --net --mount --uts --ipc sh "$0" "$@"
fi
processes=$1 mpirun=$2 hosts=""
shift 2
mount -t tmpfs none /run
ip link set lo up
ip link add name switch0 type bridge
ip link set switch0 up
ip addr add "$network.254/24" dev switch0
for i in $(seq "$processes"); do
    host=$network.$i hosts="$hosts${hosts:+,}$network.$i"
    ip netns add "$host"
    ip link add "cable$i" type veth peer name eth0 netns "$host"
    ip link set "cable$i" master switch0 up
    ip -n "$host" addr add "$host/24" dev eth0
    ip -n "$host" link set eth0 up
    ip -n "$host" link set lo up
done
APART=agent exec "$mpirun" --allow-run-as-root --mca plm_rsh_agent "$(realpath "$0")" --host "$hosts" -n "$processes" \
    --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include "$network.0/24" --mca oob_tcp_if_include "$network.0/24" "$@"
