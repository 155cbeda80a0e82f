#!/usr/bin/dash
# /init of the lab's guest: mounts, soft-RoCE, the command, its exit status. See xtask/src/lab/boot.rs.
export PATH=/job:/usr/sbin:/usr/bin HOME=/root TERM=linux LC_ALL=C.UTF-8 RUST_BACKTRACE=1
mkdir -p /proc /sys /run /tmp /root /dev /var/tmp /job
mount -t devtmpfs dev /dev; mkdir -p /dev/pts /dev/shm
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devpts pts /dev/pts
for dir in /run /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmp $dir; done
ln -s /proc/self/fd /dev/fd; ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr
mount -t tracefs trace /sys/kernel/tracing; mount -t debugfs debug /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf; mount -t cgroup2 cgroup /sys/fs/cgroup
. /lab/config # GUEST, SHELL_ROWS, SHELL_COLUMNS
STATUS=/dev/vport0p3
modprobe -a virtio_pci virtio_console 2>/dev/null # built in, or not
n=0; while [ ! -c $STATUS ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n + 1)); done

finish() { # LINE
  echo "$1" >$STATUS
  echo o >/proc/sysrq-trigger
  sleep 10
}
fail() { # WHAT
  dmesg | tail -10 >/dev/ttyS0
  finish "fail $1"
}

host() { # NAME NETDEV ADDRESS DEVICE: a network namespace with a device of its own
  ip -n "$1" link set lo up && ip -n "$1" addr add "$3"/24 dev "$2" &&
    ip -n "$1" link set "$2" mtu 9000 up &&
    ip netns exec "$1" rdma link add "$4" type rxe netdev "$2" || fail "no soft-RoCE in namespace $1"
}

while read -r bytes name; do
  [ "$(stat -c %s "/job/$name" 2>/dev/null)" = "$bytes" ] || fail "no room for $name in the guest: give it more --memory"
done </lab/carried

ulimit -l unlimited
hostname lab; ip link set lo up
modprobe -a crc32_generic 2>/dev/null # until 6.14 rxe asks the crypto layer for it
modprobe -a rdma_rxe ib_uverbs rdma_ucm ib_umad || fail "no RDMA modules in this kernel"
case $GUEST in
two-hosts)
  modprobe veth; ip netns add host0; ip netns add host1
  ip link add v0 netns host0 type veth peer name v1 netns host1
  host host0 v0 10.9.0.1 rxe0; host host1 v1 10.9.0.2 rxe1
  # Older rxe listens in the first network namespace alone.
  ip netns exec host0 ss -Huln sport = 4791 | grep -q . ||
    fail "soft-RoCE of this kernel does not receive in a network namespace: two-hosts wants --kernel backports" ;;
*)
  # MTU 9000 lets the path MTU be 4096: stock rxe copies ODP data rightly in whole pages only.
  modprobe dummy; ip link add d0 address 02:00:00:00:00:01 type dummy
  ip addr add 10.9.0.1/24 dev d0; ip link set d0 mtu 9000 up
  rdma link add rxe0 type rxe netdev d0 || fail "no soft-RoCE device" ;;
esac

# Through pipes, as on any host: a program may open /dev/stdout again, and sees no terminal.
mkfifo -m 666 /run/out /run/err
cat /run/out >/dev/vport0p1 & out=$!
cat /run/err >/dev/vport0p2 & err=$!
cd /job; echo "lab: up, the command runs" >/dev/ttyS0
dash /lab/command </dev/null >/run/out 2>/run/err
status=$?
# What a background process left behind still holds must not hold up the end.
{ sleep 3; kill $out $err; } 2>/dev/null &
wait $out $err
if [ "$SHELL_ROWS" ]; then
  stty rows "$SHELL_ROWS" columns "$SHELL_COLUMNS" </dev/hvc0
  setsid -c bash -i </dev/hvc0 >/dev/hvc0 2>&1
  status=$?
fi
finish "exit $status"
