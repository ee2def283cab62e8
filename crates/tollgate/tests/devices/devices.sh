# The BARs of both devices: one by its file, one by its address.
for slot in 10 11; do echo 1 >/sys/bus/pci/devices/0000:00:$slot.0/enable; done
bar=/sys/bus/pci/devices/0000:00:10.0/resource2
{ read -r _; read -r _; read -r address _; } </sys/bus/pci/devices/0000:00:11.0/resource

# Persistent memory as a DAX device.
nd=/sys/bus/nd
echo namespace0.0 >$nd/drivers/nd_pmem/unbind
read -r seed <$nd/devices/region0/dax_seed
echo 6f1c2c9e-0d5c-4f0e-9a53-7d1f5f1b8a11 >$nd/devices/$seed/uuid
echo pmem >$nd/devices/$seed/mode
echo 2097152 >$nd/devices/$seed/align
echo namespace0.0 >$nd/devices/$seed/namespace
echo $seed >$nd/drivers/dax_pmem/bind
read -r dax </sys/bus/dax/devices/dax0.0/resource
echo "dax $dax"

set -- --allow physical-write --set pci-resource=$bar --set device-address=$address --set physical-address=0x8000000 \
    --set dax-device=/dev/dax0.0
run reads reads "$@" --set source-offset=7
run writes writes "$@" --set source-offset=33
run dax dax "$@" --set source-offset=33

# Devices that must not be written or cannot be read.
ram=0x4000000
echo "ram $ram"
run wrong wrong --set pci-resource=/dev/zero --set physical-address=$ram --set dax-device=/dev/mem \
    --set source-offset=99 --allow physical-write

# Hands the DAX device to the kernel as system RAM.
echo dax0.0 >/sys/bus/dax/drivers/device_dax/unbind
echo dax0.0 >/sys/bus/dax/drivers/kmem/new_id
while read -r line; do
    case $line in *"System RAM (kmem)") kmem=0x${line%%-*} ;; esac
done </proc/iomem
echo "kmem $kmem"
run kmem kmem --where direction=write --where memory=device --set device-address=$kmem \
    --set source-offset=99 --allow physical-write
end
