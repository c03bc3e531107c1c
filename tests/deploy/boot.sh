#!/bin/sh
# Boots Debian's systemd as process 1 of namespaces of its own, in a root that has this machine's programs and nothing
# else of it: boot.sh ROOT CLONE PYTHON PACKAGES WORK. It runs WORK/script as root and powers off; WORK has all that was
# said. Called by `unshare`, within mounts, processes, network, names and control groups that nobody else sees.
set -eu
root=$1
mount --make-rprivate /
mount -t tmpfs none "$root"
cd "$root"
mkdir dev etc home old proc root run sys tmp usr var trial
mount --rbind /usr usr
mount --rbind /dev dev
for each in bin sbin lib lib64; do ln -s usr/$each $each; done
mount -t proc none proc
mount -t sysfs none sys
mount -t cgroup2 none sys/fs/cgroup
# The kernel's settings are everybody's.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
# Of the units that this machine has, the targets alone.
mkdir units
cp -a usr/lib/systemd/system/*.target usr/lib/systemd/system/*.slice units
mount -t tmpfs none usr/lib/systemd/system
mount -t tmpfs none usr/lib/systemd/system-generators
mv units/* usr/lib/systemd/system
mkdir -p -m 0755 etc/systemd/system/service.d etc/nginx etc/pam.d opt/clone opt/python opt/site var/backups var/lib
mkdir -m 1777 var/tmp
chmod 1777 tmp
mount --bind "$2" opt/clone
mount --bind "$3" opt/python
mount --bind "$4" opt/site
mount --bind "$5" trial
# Every day is a Sunday, on which a backup is tried.
mount -t tmpfs none usr/local/bin
printf '#!/bin/sh\necho Sun\n' > usr/local/bin/date
chmod 0755 usr/local/bin/date
echo 'root:x:0:0::/root:/bin/sh' > etc/passwd
echo 'root:x:0:' > etc/group
echo 'root:*:1::::::' > etc/shadow
: > etc/gshadow
: > etc/machine-id
printf 'passwd: files\ngroup: files\nhosts: files\n' > etc/nsswitch.conf
echo '127.0.0.1 localhost' > etc/hosts
cp /etc/login.defs etc
printf 'auth sufficient pam_rootok.so\naccount required pam_permit.so\nsession required pam_permit.so\n' > etc/pam.d/runuser
printf '/opt/python/lib\n/lib/x86_64-linux-gnu\n/lib/aarch64-linux-gnu\n' > etc/ld.so.conf
chroot . /sbin/ldconfig
printf '[Service]\nStandardOutput=append:/trial/units\nStandardError=append:/trial/units\n' \
    > etc/systemd/system/service.d/said.conf
cat > etc/systemd/system/script.service <<X
[Unit]
DefaultDependencies=no
[Service]
Type=exec
ExecStart=/bin/sh -c 'sh -eux /trial/script > /trial/said 2>&1; echo \$\$? > /trial/code; systemctl --force --force poweroff'
X
printf '[Unit]\nRequires=script.service\nDefaultDependencies=no\n' > etc/systemd/system/script.target
ip link set lo up
pivot_root . old
umount -l /old
# Else what systemd mounts for a unit in a process of its own, such as credentials, is seen by nobody else.
mount --make-rshared /
export container=docker
exec /lib/systemd/systemd --system --unit=script.target --log-target=null --show-status=no
