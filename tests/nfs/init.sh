#!/bin/busybox sh
# The guest's first process: network, disk, mount of the store. Then it runs the lines that come over the second serial
# port; `serve` starts bufferd. What it and bufferd say goes to the console.
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp /data /store
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
. /settings.sh
while read -r module; do
  insmod "/modules/$module" || echo "guest: $module does not load"
done </modules/order
hostname "$HOSTNAME"
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
mount -t ext4 /dev/vda /data || echo "guest: no local disk"
mount -i -t nfs4 -o "addr=10.0.2.2,$MOUNT_OPTIONS" 10.0.2.2:/store /store || echo "guest: no store"
grep ' /store ' /proc/mounts

await_end() {
  /bin/bufferd --config /bufferd.yaml --listen.announce_file=/tmp/serves
  echo "guest: bufferd ended with $?"
}

serve() {
  rm -f /tmp/serves
  await_end &
  while [ ! -e /tmp/serves ] && kill -0 "$!" 2>/dev/null; do
    sleep 0.1
  done
  [ -e /tmp/serves ] && echo "guest: bufferd serves"
}

# Opened before it says so: what comes while nobody has the port open is lost.
exec 3</dev/ttyS1
stty -echo <&3
echo "guest: listens"
while read -r line <&3; do
  eval "$line" &
done
