#!/bin/sh
# Common code of the guest's init scripts.
export PATH=/bin HOME=/tmp TMPDIR=/tmp LD_LIBRARY_PATH=/lib RUST_BACKTRACE=0
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
cd /tmp

# Runs an experiment and prints each sample prefixed with the run's name.
run() { # name experiment options...
    name=$1 experiment=$2
    shift 2
    tollgate run -e /experiments.toml "copy/$experiment" --rounds 1 --quiet --results "/tmp/$name" \
        --allow physical "$@" >"/tmp/$name.out" 2>&1
    while read -r line; do echo "$line"; done <"/tmp/$name.out"
    for journal in "/tmp/$name"/*/samples.jsonl; do
        while read -r line; do echo "journal $name $line"; done <"$journal"
    done
}

end() {
    echo "the end"
    # The last process to close the port waits until all output is sent; otherwise the kernel's final messages land
    # inside a line.
    exec </dev/null >/dev/null 2>&1
    exit
}
